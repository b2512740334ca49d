#include "lynx/buffer.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) throw InvalidArgument("a buffer of 0 bytes was asked for; ask for at least 1");
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        throw ArenaFull(
            text("a buffer of ", bytes, " bytes was asked for; the system refused: ", std::strerror(errno)));
    data_ = static_cast<std::byte*>(p);
    // Large pages where the system has them: copies through shared memory gain most. It may refuse.
    (void)::madvise(p, bytes, MADV_HUGEPAGE);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Buffer::~Buffer() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace lynx
