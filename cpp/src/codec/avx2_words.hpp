// The integer half of decoding with AVX2: the planes of 256 coordinates to h = H c. Part of avx2.cpp.
//
// H of a nibble's four coordinates is looked up, so that a plane's bits need never be spread out; the next two
// stages are on bytes, the others on 16-bit words. Words hold 255 * 128, and the last stage, left to the caller,
// makes 32-bit integers of them: enough for a block of 256. Comments name a coordinate's index bits 0-7.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/avx2_inline.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx::codec {
namespace {

constexpr std::size_t kChunk = 256;  // coordinates
constexpr std::size_t kChunkRow = kChunk / 8;

/// Coordinate k of H n for the four bits n of a nibble, shifted left by `weight`, plus 2 << weight for k > 0: so
/// that none is negative. All of five planes' together, at most 124, and two such sums fit a byte.
struct NibbleTables {
    static constexpr unsigned kWeights = 5;
    alignas(32) std::uint8_t of[kWeights][4][32];
};

[[nodiscard]] constexpr NibbleTables nibble_tables() noexcept {
    NibbleTables tables{};
    for (unsigned weight = 0; weight < NibbleTables::kWeights; ++weight)
        for (unsigned k = 0; k < 4; ++k)
            for (unsigned n = 0; n < 32; ++n) {
                int sum = k == 0 ? 0 : 2;
                for (unsigned i = 0; i < 4; ++i)
                    if (((n >> i) & 1u) != 0) sum += std::popcount(i & k) % 2 == 0 ? 1 : -1;
                tables.of[weight][k][n] = static_cast<std::uint8_t>(sum << weight);
            }
    return tables;
}

constexpr NibbleTables kNibbles = nibble_tables();

/// Index bits 0 and 1 are k; a byte's place is bits 3-7.
template <unsigned kCount>
LYNX_INLINE __m256i transform_nibbles(const __m256i* nibbles, unsigned k) noexcept {
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 5
    for (unsigned p = 0; p < kCount; ++p) {
        const auto* table = reinterpret_cast<const __m256i*>(kNibbles.of[kCount - 1 - p][k]);
        const __m256i part = _mm256_shuffle_epi8(_mm256_load_si256(table), nibbles[p]);
        sum = p == 0 ? part : _mm256_add_epi8(sum, part);
    }
    return sum;
}

/// How far the bytes of transform_nibbles lie above what they stand for.
[[nodiscard]] constexpr int nibble_bias(unsigned count, unsigned k) noexcept {
    return k == 0 ? 0 : 2 * ((1 << count) - 1);
}

/// The two stages of bits 2 and 3 for kCount planes, times kWeight: w[bit 2][bit 3], a word's place is bits 4-7.
/// Those with bit 3 = 0 lie `transform_bias` too high.
template <unsigned kCount, int kWeight>
LYNX_INLINE void transform_bytes(const __m256i* low, const __m256i* high, unsigned k, __m256i (*w)[2]) noexcept {
    const __m256i a = transform_nibbles<kCount>(low, k);
    const __m256i b = transform_nibbles<kCount>(high, k);
    const __m256i lift = _mm256_set1_epi8(static_cast<char>(4 * ((1 << kCount) - 1)));
    const __m256i both[2] = {_mm256_add_epi8(a, b), _mm256_sub_epi8(_mm256_add_epi8(a, lift), b)};
    for (std::size_t bit2 = 0; bit2 < 2; ++bit2) {
        w[bit2][0] = _mm256_maddubs_epi16(both[bit2], _mm256_set1_epi16(kWeight * 0x0101));
        w[bit2][1] = _mm256_maddubs_epi16(both[bit2], _mm256_set1_epi16(kWeight - kWeight * 0x0100));
    }
}

[[nodiscard]] constexpr int transform_bias(unsigned count, unsigned k, unsigned bit2) noexcept {
    return 2 * (bit2 == 0 ? 2 * nibble_bias(count, k) : 4 * ((1 << count) - 1));
}

LYNX_INLINE void butterfly(__m256i& a, __m256i& b) noexcept {
    const __m256i sum = _mm256_add_epi16(a, b);
    b = _mm256_sub_epi16(a, b);
    a = sum;
}

LYNX_INLINE void interleave_dwords(__m256i& a, __m256i& b) noexcept {
    const __m256i low = _mm256_unpacklo_epi32(a, b);
    b = _mm256_unpackhi_epi32(a, b);
    a = low;
}

LYNX_INLINE void interleave_lanes(__m256i& a, __m256i& b) noexcept {
    const __m256i low = _mm256_permute2x128_si256(a, b, 0x20);
    b = _mm256_permute2x128_si256(a, b, 0x31);
    a = low;
}

/// 256 coordinates' first kPlanes bits in planes that are plane_step apart, in blocks of 1 << kLog2 or parts of
/// 256 of a larger one: all stages but that of bit 4. Register 8 * bit 0 + i of `words` gets bits 5, 6 and 7 as
/// i; a word's place in it is bits 4, 1, 2, 3.
template <unsigned kPlanes, unsigned kLog2>
void transform_chunk(const std::byte* planes, std::size_t plane_step, __m256i* words) noexcept {
    constexpr unsigned kLow = kPlanes <= NibbleTables::kWeights ? kPlanes : 4;
    constexpr unsigned kHigh = kPlanes - kLow;
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low[kPlanes];
    __m256i high[kPlanes];
#pragma GCC unroll 8
    for (unsigned p = 0; p < kPlanes; ++p) {
        const __m256i row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(planes + p * plane_step));
        low[p] = _mm256_and_si256(row, mask);
        high[p] = _mm256_and_si256(_mm256_srli_epi16(row, 4), mask);
    }
#pragma GCC unroll 2
    for (std::size_t bit0 = 0; bit0 < 2; ++bit0) {
        __m256i w[2][2][2];  // bits 1, 2, 3
#pragma GCC unroll 2
        for (std::size_t bit1 = 0; bit1 < 2; ++bit1) {
            const auto k = static_cast<unsigned>(bit0 + 2 * bit1);
            transform_bytes<kLow, 1>(low + kHigh, high + kHigh, k, w[bit1]);
            if constexpr (kHigh != 0) {
                __m256i more[2][2];
                transform_bytes<kHigh, 1 << kLow>(low, high, k, more);
                for (unsigned i = 0; i < 4; ++i)
                    w[bit1][i / 2][i % 2] = _mm256_add_epi16(w[bit1][i / 2][i % 2], more[i / 2][i % 2]);
            }
            for (std::size_t bit2 = 0; bit2 < 2; ++bit2) {
                int bias = transform_bias(kLow, k, static_cast<unsigned>(bit2));
                if (kHigh != 0) bias += transform_bias(kHigh, k, static_cast<unsigned>(bit2)) << kLow;
                w[bit1][bit2][0] = _mm256_sub_epi16(w[bit1][bit2][0], _mm256_set1_epi16(static_cast<short>(bias)));
            }
        }
        // Each step brings a register's bit into the place, and one of the place's out, for its stage.
        for (std::size_t bit3 = 0; bit3 < 2; ++bit3) {
            for (std::size_t bit1 = 0; bit1 < 2; ++bit1) {
                interleave_dwords(w[bit1][0][bit3], w[bit1][1][bit3]);  // 2 in, 6 out
                if (kLog2 >= 7) butterfly(w[bit1][0][bit3], w[bit1][1][bit3]);
            }
            for (std::size_t bit6 = 0; bit6 < 2; ++bit6) {
                interleave_dwords(w[0][bit6][bit3], w[1][bit6][bit3]);  // 1 in, 5 out
                if (kLog2 >= 6) butterfly(w[0][bit6][bit3], w[1][bit6][bit3]);
            }
        }
        for (std::size_t bit5 = 0; bit5 < 2; ++bit5)
            for (std::size_t bit6 = 0; bit6 < 2; ++bit6) {
                interleave_lanes(w[bit5][bit6][0], w[bit5][bit6][1]);  // 3 in, 7 out
                if (kLog2 >= 8) butterfly(w[bit5][bit6][0], w[bit5][bit6][1]);
                for (std::size_t bit7 = 0; bit7 < 2; ++bit7)
                    _mm256_store_si256(words + 8 * bit0 + bit5 + 2 * bit6 + 4 * bit7, w[bit5][bit6][bit7]);
            }
    }
}

using TransformFn = void (*)(const std::byte*, std::size_t, __m256i*) noexcept;

template <unsigned kLog2>
constexpr TransformFn kTransform[kPlaneCount] = {
    transform_chunk<1, kLog2>, transform_chunk<2, kLog2>, transform_chunk<3, kLog2>, transform_chunk<4, kLog2>,
    transform_chunk<5, kLog2>, transform_chunk<6, kLog2>, transform_chunk<7, kLog2>, transform_chunk<8, kLog2>};

}  // namespace
}  // namespace lynx::codec
