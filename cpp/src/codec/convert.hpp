// Element types to fp32 and back. Rounding is to nearest, ties to even; subnormals are kept; what is too
// large becomes an infinity; a NaN stays a NaN. Written without branches, so that loops over them vectorize.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lynx/dtype.hpp"

namespace lynx::codec {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

[[nodiscard]] constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

[[nodiscard]] constexpr std::uint16_t f32_to_bf16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

[[nodiscard]] constexpr float f16_to_f32(std::uint16_t bits) noexcept {
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    // Read with fp32's exponent bias the value is 2^112 too small, subnormals included.
    const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    const std::uint32_t special = magnitude | 0x7f800000u;
    return std::bit_cast<float>(sign | (magnitude >= 0x0f800000u ? special : finite));
}

[[nodiscard]] constexpr std::uint16_t f32_to_f16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // 0.5 has the spacing of fp16's subnormals: the addition does their rounding.
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    std::uint32_t result = magnitude < 0x38800000u ? tiny : normal;
    result = magnitude >= 0x47800000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? nan : result;
    return static_cast<std::uint16_t>(sign | result);
}

// Constant expressions they are never; constexpr is what lets device code call them.
// Always inlined, as they are used in files that are compiled for an instruction set.
template <class T>
[[nodiscard, gnu::always_inline]] constexpr T load(const std::byte* from) noexcept {
    T value{};
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
[[gnu::always_inline]] constexpr void store(std::byte* to, T value) noexcept {
    std::memcpy(to, &value, sizeof value);
}

/// `count` adjacent elements of type kType at `src`, as fp32.
template <DType kType>
void load_floats(const std::byte* __restrict src, std::size_t count, float* __restrict dst) noexcept {
    if constexpr (kType == DType::kF32) {
        std::memcpy(dst, src, count * sizeof(float));
    } else {
        for (std::size_t i = 0; i < count; ++i) {
            const auto bits = load<std::uint16_t>(src + 2 * i);
            dst[i] = kType == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
        }
    }
}

/// The reverse.
template <DType kType>
void store_floats(const float* __restrict src, std::size_t count, std::byte* __restrict dst) noexcept {
    if constexpr (kType == DType::kF32) {
        std::memcpy(dst, src, count * sizeof(float));
    } else {
        for (std::size_t i = 0; i < count; ++i)
            store(dst + 2 * i, kType == DType::kBF16 ? f32_to_bf16(src[i]) : f32_to_f16(src[i]));
    }
}

}  // namespace lynx::codec
