// The exact tier as docs/wire-format.md states it, done naively: the bits of one word. It shares no code with what it
// checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lynx/dtype.hpp"

namespace lynx::oracle {

inline std::int64_t ordinal(std::uint32_t bits) {
    return bits < 0x8000 ? std::int64_t{bits} : 0x7fff - std::int64_t{bits};  // negative: -1 for -0
}

struct Value {
    std::uint32_t folded;
    int k;  // -1: always escaped
};

inline Value exact_value(DType type, std::uint32_t x, std::uint32_t reference, double scale) {
    std::int64_t difference = ordinal(x) - ordinal(reference);
    difference = static_cast<std::int16_t>(difference);  // wraps
    const auto folded = static_cast<std::uint32_t>(difference >= 0 ? 2 * difference : -2 * difference - 1);
    const int mantissa = type == DType::kBF16 ? 7 : 10;
    const int bias = type == DType::kBF16 ? 127 : 15;
    const int exponent = std::max(static_cast<int>(reference >> mantissa & (type == DType::kBF16 ? 255u : 31u)), 1);
    if (scale == 0) return {folded, 0};
    const int k = std::max(std::ilogb(scale) + bias + mantissa - 1 - exponent, 0);
    return {folded, k > mantissa + 1 ? -1 : k};
}

inline std::vector<bool> bits_of_word(const std::vector<Value>& values) {
    std::vector<bool> bits;
    for (int j = 0; j < 11; ++j)
        for (const Value& v : values)
            if (v.k > j) bits.push_back(v.folded >> j & 1);
    for (std::uint32_t j = 0; j < 6; ++j)
        for (const Value& v : values)
            if (v.k >= 0 && v.folded >> v.k >= j) bits.push_back(v.folded >> v.k > j);
    for (const Value& v : values)
        if (v.k < 0 || v.folded >> v.k >= 6)
            for (int j = 0; j < 16; ++j) bits.push_back(v.folded >> j & 1);
    return bits;
}

}  // namespace lynx::oracle
