// The exact tier's arithmetic, value by value: what turns the 8-plane reconstruction x̂ into the source's bits x.
// What every kernel and the device have to agree on; docs/wire-format.md has the format in words.
//
// Both x and x̂ are 16-bit floats. Their *ordinals*, integers that sort like the floats, lie close together
// where x̂ is large against the quantizer's step, so that the difference takes few bits: a Rice code, whose
// parameter k both ends derive from x̂ and the vector's scale.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "lynx/dtype.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx::codec {

/// Coordinates of one vector that are coded together, bit-plane by bit-plane.
inline constexpr std::size_t kWordValues = 64;
/// How often a unary part is asked whether it goes on; a value whose does after that is escaped.
inline constexpr unsigned kUnaryPlanes = 6;
inline constexpr unsigned kEscapeBits = 16;
/// The parameter of a value that is always escaped: x̂ is so small that it says nothing of x.
inline constexpr unsigned kAlwaysEscaped = 31;
inline constexpr std::size_t kMaxGroupValues = 4096;
/// A group's bytes are a multiple of this, and so is where it starts.
inline constexpr std::size_t kGroupAlignment = 8;

/// The most bits that a word can take, in bytes.
inline constexpr std::size_t kMaxWordBytes = kWordValues * (11 + kUnaryPlanes + kEscapeBits) / 8;

static_assert(kMaxGroupValues >= kMaxHeadDim);

/// The two 16-bit floats. The ordinal's difference grows by a bit for each bit of mantissa.
struct Float16Format {
    int mantissa_bits;
    int exponent_bias;
    int exponent_mask;
};

template <DType kType>
inline constexpr Float16Format kFloat16Format =
    kType == DType::kF16 ? Float16Format{10, 15, 0x1f} : Float16Format{7, 127, 0xff};

/// The integer that sorts like the float of these bits, as 16 wrapping bits. It is its own inverse.
[[nodiscard]] constexpr std::uint16_t ordinal(std::uint16_t bits) noexcept {
    return static_cast<std::uint16_t>(bits ^ ((bits & 0x8000u) != 0 ? 0x7fffu : 0u));
}

/// x against x̂ as an unsigned number, small where they are close: 0, -1, 1, -2, 2, ... -> 0, 1, 2, 3, 4, ...
[[nodiscard]] constexpr std::uint16_t fold(std::uint16_t value, std::uint16_t reference) noexcept {
    const unsigned difference = (unsigned{ordinal(value)} - ordinal(reference)) & 0xffffu;
    return static_cast<std::uint16_t>((difference << 1) ^ ((difference & 0x8000u) != 0 ? 0xffffu : 0u));
}

[[nodiscard]] constexpr std::uint16_t unfold(std::uint16_t folded, std::uint16_t reference) noexcept {
    const unsigned difference = (unsigned{folded} >> 1) ^ ((folded & 1u) != 0 ? 0xffffu : 0u);
    return ordinal(static_cast<std::uint16_t>(ordinal(reference) + difference));
}

/// What a vector's scale, an fp16 number that is not negative, adds to each of its parameters; all of them are
/// 0 for a scale of 0, where this is small enough.
template <DType kType>
[[nodiscard, gnu::always_inline]] constexpr int scale_term(float scale) noexcept {
    constexpr Float16Format kFormat = kFloat16Format<kType>;
    const auto exponent = static_cast<int>(__builtin_bit_cast(std::uint32_t, scale) >> 23);
    return exponent == 0 ? -1024 : exponent - 127 + kFormat.exponent_bias + kFormat.mantissa_bits - 1;
}

/// The Rice parameter k, 0-8 for bf16 and 0-11 for fp16, or kAlwaysEscaped.
template <DType kType>
[[nodiscard]] constexpr unsigned rice_parameter(int scale_term, std::uint16_t reference) noexcept {
    constexpr Float16Format kFormat = kFloat16Format<kType>;
    // Subnormals have the exponent of the smallest normal numbers.
    const int exponent = std::max((reference >> kFormat.mantissa_bits) & kFormat.exponent_mask, 1);
    const int k = std::max(scale_term - exponent, 0);
    return k > kFormat.mantissa_bits + 1 ? kAlwaysEscaped : static_cast<unsigned>(k);
}

static_assert(ordinal(0x8000) == 0xffff && ordinal(ordinal(0xff80)) == 0xff80);
static_assert(fold(0x8000, 0x0000) == 1 && unfold(1, 0x0000) == 0x8000);
static_assert(rice_parameter<DType::kBF16>(scale_term<DType::kBF16>(1.0f), 0x3f80) == 6);
static_assert(rice_parameter<DType::kF16>(scale_term<DType::kF16>(1.0f), 0x3c00) == 9);
static_assert(rice_parameter<DType::kBF16>(scale_term<DType::kBF16>(0.0f), 0x0000) == 0);

}  // namespace lynx::codec
