#include "lynx/device_memory.hpp"

namespace lynx {

std::string_view name_of(MemoryKind kind) noexcept {
    switch (kind) {
        case MemoryKind::kHost: return "host";
        case MemoryKind::kPinned: return "pinned";
        case MemoryKind::kCuda: return "CUDA";
    }
    return "unknown";
}

}  // namespace lynx
