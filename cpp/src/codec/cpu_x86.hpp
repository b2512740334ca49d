// What clang's __builtin_cpu_supports does not know by name. Always inlined: see cpp/CMakeLists.txt.
#pragma once

#include <cpuid.h>

namespace lynx::codec {

/// CPUs with AVX2 have both, but nothing says that they must.
[[nodiscard, gnu::always_inline]] inline bool cpu_has_f16c_and_lzcnt() noexcept {
    constexpr unsigned kF16c = 1u << 29;
    constexpr unsigned kLzcnt = 1u << 5;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kF16c) == 0) return false;
    return __get_cpuid(0x80000001u, &a, &b, &c, &d) != 0 && (c & kLzcnt) != 0;
}

}  // namespace lynx::codec
