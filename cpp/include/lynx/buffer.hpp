// Host memory that a NIC may read and write: page-aligned, owned, never moved.
#pragma once

#include <cstddef>
#include <span>

#include "lynx/export.hpp"

namespace lynx {

using ByteSpan = std::span<std::byte>;
using ConstByteSpan = std::span<const std::byte>;

/// An anonymous mapping, zeroed by the kernel on first touch. Moving a Buffer does not move its bytes.
class LYNX_API Buffer {
   public:
    Buffer() noexcept = default;
    /// Throws InvalidArgument for 0 bytes, ArenaFull if the system refuses the memory.
    explicit Buffer(std::size_t bytes);
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    [[nodiscard]] ByteSpan span() const noexcept { return {data_, bytes_}; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

   private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace lynx
