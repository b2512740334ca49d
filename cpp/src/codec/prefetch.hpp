// Asking for memory before it is read. Always inlined, as it is used in files that are compiled for an instruction set.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace lynx::codec {

/// The cache line `ahead` bytes on, be that memory or not. As an integer: pointer arithmetic must stay inside of an
/// array, this need not.
[[gnu::always_inline]] inline void prefetch(const std::byte* from, std::ptrdiff_t ahead) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there
    _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
}

}  // namespace lynx::codec
