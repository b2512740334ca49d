// The wire format as docs/wire-format.md states it, done naively: in double and in 64-bit integers wherever
// these are exact, one element at a time. It shares no code with what it checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "lynx/dtype.hpp"

namespace lynx::oracle {

/// A double to the nearest value of a binary format, ties to even, subnormals kept, overflow to infinity.
inline double round_to(double value, int precision, int least_exponent, double largest) {
    if (value == 0 || !std::isfinite(value)) return value;
    int exponent = 0;
    std::frexp(value, &exponent);  // value = 0.1xxx * 2^exponent
    const int unit = std::max(exponent - precision, least_exponent);
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
    return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

inline double to_half(double v) {
    return round_to(v, 11, -24, 65504);
}
inline double to_bf16(double v) {
    return round_to(v, 8, -133, 0x1.fep127);
}

inline double round_to(DType type, float v) {
    switch (type) {
        case DType::kBF16: return to_bf16(v);
        case DType::kF16: return to_half(v);
        case DType::kF32: return v;
    }
    return 0;
}

/// The bits of a value that its format holds exactly.
inline std::uint32_t bits_of(DType type, double value) {
    const auto f = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &f, 4);
    if (type == DType::kF32) return bits;
    if (type == DType::kBF16) return bits >> 16;
    const std::uint32_t sign = bits >> 31 << 15;
    if (std::isnan(value)) return sign | 0x7e00;
    if (std::isinf(value)) return sign | 0x7c00;
    const double magnitude = std::abs(value);
    if (magnitude < 0x1p-14) return sign | static_cast<std::uint32_t>(std::ldexp(magnitude, 24));
    const int exponent = std::ilogb(magnitude);
    const auto mantissa = static_cast<std::uint32_t>(std::ldexp(magnitude, 10 - exponent)) - 1024;
    return sign | static_cast<std::uint32_t>(exponent + 15) << 10 | mantissa;
}

inline double value_of(DType type, std::uint32_t bits) {
    if (type == DType::kF16) {
        const double sign = bits >> 15 ? -1.0 : 1.0;
        const int exponent = static_cast<int>(bits >> 10 & 31);
        const double mantissa = bits & 1023;
        if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
        return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
    }
    const std::uint32_t wide = type == DType::kBF16 ? bits << 16 : bits;
    float f = 0;
    std::memcpy(&f, &wide, 4);
    return f;
}

inline int block_of(int head_dim) {
    int block = 1;
    while (head_dim % (2 * block) == 0) block *= 2;
    return block;
}

inline int log2_of(int block) {
    int k = 0;
    while (1 << k < block) ++k;
    return k;
}

/// The textbook butterfly, in place, stage order h = 1, 2, 4, ...
template <class T>
void butterfly(std::vector<T>& x, int block) {
    for (int start = 0; start < static_cast<int>(x.size()); start += block)
        for (int h = 1; h < block; h *= 2)
            for (int i = 0; i < block; ++i)
                if ((i & h) == 0) {
                    T& low = x[static_cast<std::size_t>(start + i)];
                    T& high = x[static_cast<std::size_t>(start + i + h)];
                    const T a = low;
                    const T b = high;
                    low = a + b;
                    high = a - b;
                }
}

struct Coded {
    bool finite = true;
    double scale = 0;
    double zero = 0;
    std::vector<int> codes;
};

inline Coded encode(std::vector<float> x) {
    const auto block = block_of(static_cast<int>(x.size()));
    butterfly(x, block);
    for (float& y : x) y *= static_cast<float>(std::ldexp(1.0, -(log2_of(block) / 2)));
    Coded out{true, 0, 0, std::vector<int>(x.size(), 0)};
    for (const float y : x) out.finite = out.finite && std::isfinite(y);
    if (!out.finite) return out;
    const float low = *std::min_element(x.begin(), x.end());
    const float high = *std::max_element(x.begin(), x.end());
    const float step = (high - low) / 255.0f;
    out.scale = to_half(std::min<double>(step, 65504));
    out.zero = to_half(std::clamp<double>(low, -65504, 65504)) + 0.0;
    if (out.scale == 0) return out;
    const auto inverse = 1.0f / static_cast<float>(out.scale);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float code = (x[i] - static_cast<float>(out.zero)) * inverse;
        out.codes[i] = static_cast<int>(std::clamp(std::nearbyint(static_cast<double>(code)), 0.0, 255.0));
    }
    return out;
}

/// fp32 values, before the conversion to the destination's type.
inline std::vector<float> decode(const Coded& coded, int planes) {
    const auto size = coded.codes.size();
    const int block = block_of(static_cast<int>(size));
    const int missing = 8 - planes;
    const double inverse = std::ldexp(1.0, -((log2_of(block) + 1) / 2));
    std::vector<std::int64_t> h(size);
    for (std::size_t i = 0; i < size; ++i) h[i] = coded.codes[i] >> missing;
    butterfly(h, block);
    // Products and sums of two fp32 values, rounded from double, are those of fp32.
    const double factor = coded.scale * (1 << missing) * inverse;
    const auto centre = static_cast<float>(coded.zero + coded.scale * ((1 << missing) - 1) / 2.0);
    std::vector<float> x(size);
    for (std::size_t i = 0; i < size; ++i) {
        x[i] = static_cast<float>(factor * static_cast<double>(h[i]));
        if (i % static_cast<std::size_t>(block) == 0)
            x[i] = static_cast<float>(static_cast<double>(x[i]) + centre * (block * inverse));
    }
    return x;
}

}  // namespace lynx::oracle
