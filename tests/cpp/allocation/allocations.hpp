// How often this process takes memory: malloc and its kin and mmap, from any thread, libstdc++'s operator new
// included. Only the executable that links allocations.cpp counts.
#pragma once

#include <cstddef>

namespace lynx::testing {

/// False under sanitizers, which bring an allocator of their own: then nothing is counted.
[[nodiscard]] bool counts_allocations() noexcept;

/// Since the process began.
[[nodiscard]] std::size_t allocations() noexcept;

}  // namespace lynx::testing
