#include "lynx/device_memory.hpp"

#include <unistd.h>

#include <utility>

namespace lynx {

std::string_view name_of(MemoryKind kind) noexcept {
    switch (kind) {
        case MemoryKind::kHost: return "host";
        case MemoryKind::kPinned: return "pinned";
        case MemoryKind::kCuda: return "CUDA";
    }
    return "unknown";
}

Dmabuf::Dmabuf(Dmabuf&& other) noexcept : file_(std::exchange(other.file_, -1)), offset_(other.offset_) {}

Dmabuf::~Dmabuf() {
    if (file_ >= 0) ::close(file_);
}

}  // namespace lynx
