// Codes to bit-planes and back, eight codes in a 64-bit word at a time. Loops of shifts, masks and
// (de)interleaving that any compiler vectorizes; no instruction set is assumed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lynx/plane_layout.hpp"

namespace lynx::codec {

/// Byte r, bit c <-> byte c, bit r: three rounds of swapping off-diagonal quarters.
[[nodiscard]] constexpr std::uint64_t transpose_8x8_bits(std::uint64_t w) noexcept {
    std::uint64_t t = (w ^ (w >> 7)) & 0x00aa00aa00aa00aau;
    w ^= t ^ (t << 7);
    t = (w ^ (w >> 14)) & 0x0000cccc0000ccccu;
    w ^= t ^ (t << 14);
    t = (w ^ (w >> 28)) & 0x00000000f0f0f0f0u;
    return w ^ t ^ (t << 28);
}
static_assert(transpose_8x8_bits(0x0000000000000080u) == 0x0100000000000000u);
static_assert(transpose_8x8_bits(0x00000000000000ffu) == 0x0101010101010101u);

template <std::size_t kCapacity>
struct alignas(64) CodeScratch {
    std::uint8_t a[kCapacity];
    std::uint8_t b[kCapacity];
};

namespace detail {

inline void transpose_words(std::uint8_t* bytes, std::size_t words) noexcept {
    for (std::size_t j = 0; j < words; ++j) {
        std::uint64_t w;
        std::memcpy(&w, bytes + 8 * j, 8);
        w = transpose_8x8_bits(w);
        std::memcpy(bytes + 8 * j, &w, 8);
    }
}

inline void deinterleave(const std::uint8_t* __restrict in, std::size_t half, std::uint8_t* __restrict out) noexcept {
    for (std::size_t i = 0; i < half; ++i) {
        out[i] = in[2 * i];
        out[i + half] = in[2 * i + 1];
    }
}

inline void interleave(const std::uint8_t* __restrict in, std::size_t half, std::uint8_t* __restrict out) noexcept {
    for (std::size_t i = 0; i < half; ++i) {
        out[2 * i] = in[i];
        out[2 * i + 1] = in[i + half];
    }
}

}  // namespace detail

/// Splits scratch.a[0 .. 8 * row_bytes) into eight rows, row p to planes + p * plane_step.
template <std::size_t kCapacity>
void split_planes(CodeScratch<kCapacity>& s, std::size_t row_bytes, std::byte* planes,
                  std::size_t plane_step) noexcept {
    detail::transpose_words(s.a, row_bytes);
    // Byte b of word j goes to row b, place j: three rounds move b from the low to the high index bits.
    const std::size_t half = 4 * row_bytes;
    detail::deinterleave(s.a, half, s.b);
    detail::deinterleave(s.b, half, s.a);
    detail::deinterleave(s.a, half, s.b);
    for (unsigned p = 0; p < kPlaneCount; ++p)
        std::memcpy(planes + p * plane_step, s.b + (kPlaneCount - 1 - p) * row_bytes, row_bytes);
}

/// The reverse for the first `count` planes: scratch.a holds the codes shifted right by 8 - count.
template <std::size_t kCapacity>
void merge_planes(const std::byte* planes, std::size_t plane_step, unsigned count, std::size_t row_bytes,
                  CodeScratch<kCapacity>& s) noexcept {
    for (unsigned p = 0; p < count; ++p)
        std::memcpy(s.b + (count - 1 - p) * row_bytes, planes + p * plane_step, row_bytes);
    std::memset(s.b + count * row_bytes, 0, (kPlaneCount - count) * row_bytes);
    const std::size_t half = 4 * row_bytes;
    detail::interleave(s.b, half, s.a);
    detail::interleave(s.a, half, s.b);
    detail::interleave(s.b, half, s.a);
    detail::transpose_words(s.a, row_bytes);
}

}  // namespace lynx::codec
