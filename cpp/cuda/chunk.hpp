// A chunk is eight adjacent coordinates of one vector: what a lane works on, and one byte of each plane.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "codec/convert.hpp"
#include "device.hpp"
#include "lynx/dtype.hpp"

namespace lynx::cuda {

inline constexpr unsigned kChunk = 8;
/// The bytes of the widest access; addresses that are a multiple of them take it.
inline constexpr unsigned kWide = 16;

template <DType kType>
using Bits = std::conditional_t<kType == DType::kF32, std::uint32_t, std::uint16_t>;

template <DType kType>
using Chunk = Values<Bits<kType>, kChunk>;

template <DType kType>
[[nodiscard]] constexpr float widen(Bits<kType> bits) noexcept {
    if constexpr (kType == DType::kBF16) return codec::bf16_to_f32(bits);
    if constexpr (kType == DType::kF16) return codec::f16_to_f32(bits);
    if constexpr (kType == DType::kF32) return std::bit_cast<float>(bits);
}

template <DType kType>
[[nodiscard]] constexpr Bits<kType> narrow(float value) noexcept {
    if constexpr (kType == DType::kBF16) return codec::f32_to_bf16(value);
    if constexpr (kType == DType::kF16) return codec::f32_to_f16(value);
    if constexpr (kType == DType::kF32) return std::bit_cast<std::uint32_t>(value);
}

/// From one type's bits to another's; the same type's are left as they are.
template <DType kFrom, DType kTo>
[[nodiscard]] constexpr Bits<kTo> converted(Bits<kFrom> bits) noexcept {
    if constexpr (kFrom == kTo)
        return bits;
    else
        return narrow<kTo>(widen<kFrom>(bits));
}

/// A number at a multiple of its size, in one access.
template <class T>
[[nodiscard]] LYNX_DEVICE T load_aligned(const std::byte* from) {
    T value;
    std::memcpy(&value, __builtin_assume_aligned(from, sizeof value), sizeof value);
    return value;
}

template <class T>
LYNX_DEVICE void store_aligned(std::byte* to, T value) {
    std::memcpy(__builtin_assume_aligned(to, sizeof value), &value, sizeof value);
}

/// As few accesses as the alignment allows: one for eight 16-bit elements where it is kWide, two for 32-bit ones.
template <DType kType>
[[nodiscard]] LYNX_DEVICE Chunk<kType> load_chunk(const std::byte* from, unsigned alignment) {
    constexpr std::size_t kSize = sizeof(Bits<kType>);
    Chunk<kType> out;
    if (alignment >= kWide) {
        std::memcpy(&out, __builtin_assume_aligned(from, kWide), sizeof out);
    } else if (alignment >= kSize) {
        for (unsigned i = 0; i < kChunk; ++i) out.v[i] = load_aligned<Bits<kType>>(from + i * kSize);
    } else {
        for (unsigned i = 0; i < kChunk; ++i) out.v[i] = codec::load<Bits<kType>>(from + i * kSize);
    }
    return out;
}

template <DType kType>
LYNX_DEVICE void store_chunk(std::byte* to, const Chunk<kType>& chunk, unsigned alignment) {
    constexpr std::size_t kSize = sizeof(Bits<kType>);
    if (alignment >= kWide) {
        std::memcpy(__builtin_assume_aligned(to, kWide), &chunk, sizeof chunk);
    } else if (alignment >= kSize) {
        for (unsigned i = 0; i < kChunk; ++i) store_aligned(to + i * kSize, chunk.v[i]);
    } else {
        for (unsigned i = 0; i < kChunk; ++i) codec::store(to + i * kSize, chunk.v[i]);
    }
}

}  // namespace lynx::cuda
