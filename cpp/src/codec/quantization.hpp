// From rotated coordinates to a scale, a zero and 8-bit codes: what every kernel and the device have to agree on.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "codec/convert.hpp"

namespace lynx::codec {

/// A float's bits as an integer that sorts like it: NaNs beyond the infinities of their sign. (It maps both
/// ways.) Comparisons of integers vectorize where those of floats, which may trap, do not.
[[nodiscard]] constexpr std::int32_t ordered(std::int32_t bits) noexcept {
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

/// The least and the greatest coordinate of a vector.
struct Range {
    std::int32_t low = INT32_MAX;  // ordered bits
    std::int32_t high = INT32_MIN;

    constexpr void include(float y) noexcept {
        const std::int32_t value = ordered(std::bit_cast<std::int32_t>(y));
        low = std::min(low, value);
        high = std::max(high, value);
    }
    [[nodiscard]] constexpr bool finite() const noexcept {
        constexpr std::int32_t kInfinity = 0x7f800000;
        return low > ~kInfinity && high < kInfinity;
    }
    [[nodiscard]] constexpr float least() const noexcept { return std::bit_cast<float>(ordered(low)); }
    [[nodiscard]] constexpr float most() const noexcept { return std::bit_cast<float>(ordered(high)); }
};

struct ScaleZero {
    std::uint16_t scale = 0;  // fp16
    std::uint16_t zero = 0;
};

[[nodiscard]] constexpr ScaleZero scale_zero_of(Range range) noexcept {
    // Local: device code has no address of a constant at namespace scope, and std::min takes one. (nvcc makes a trap of
    // it without a word.)
    constexpr float kMaxHalf = 65504.0f;
    const float scale = std::min((range.most() - range.least()) / 255.0f, kMaxHalf);
    const std::uint16_t zero = f32_to_f16(std::clamp(range.least(), -kMaxHalf, kMaxHalf));
    return {f32_to_f16(scale), zero == 0x8000u ? std::uint16_t{0} : zero};
}

[[nodiscard]] constexpr std::uint8_t code_of(float y, float zero, float inverse_scale) noexcept {
    // Added to 0..255 it rounds to an integer, ties to even, and leaves that integer in the low bits.
    constexpr float kRounder = 0x1.8p23f;
    constexpr auto kMostCode = std::bit_cast<std::int32_t>(255.0f);
    // Clamped as integers: negative floats are negative integers, the others sort alike.
    auto bits = std::bit_cast<std::int32_t>((y - zero) * inverse_scale);
    bits = std::min(std::max(bits, 0), kMostCode);
    const float code = std::bit_cast<float>(bits) + kRounder;
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(code));
}

static_assert(code_of(2.5f, 0.0f, 1.0f) == 2 && code_of(-1.0f, 0.0f, 1.0f) == 0 && code_of(300.0f, 0.0f, 1.0f) == 255);

}  // namespace lynx::codec
