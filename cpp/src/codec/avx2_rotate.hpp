// The forward rotation with AVX2: two vectors at a time, one in each 128-bit lane, so that most butterflies are
// between registers. Part of avx2.cpp.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "codec/avx2_inline.hpp"
#include "codec/kernels.hpp"
#include "codec/prefetch.hpp"
#include "codec/rotation.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx::codec {
namespace {

// Coordinates are handled in units of 32 of each of the two vectors: eight registers of floats, register r holds
// coordinates 4 r to 4 r + 3, of the first vector in its lower half.
constexpr std::size_t kUnit = 32;
constexpr std::size_t kUnitFloats = 2 * kUnit;

LYNX_INLINE __m256i load_lanes(const std::byte* a, const std::byte* b) noexcept {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)),
                                   1);
}

/// In each lane r[i], dword j <-> r[j], dword i.
LYNX_INLINE void transpose_dwords(__m256i* r) noexcept {
    const __m256i t0 = _mm256_unpacklo_epi32(r[0], r[1]);
    const __m256i t1 = _mm256_unpackhi_epi32(r[0], r[1]);
    const __m256i t2 = _mm256_unpacklo_epi32(r[2], r[3]);
    const __m256i t3 = _mm256_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm256_unpacklo_epi64(t0, t2);
    r[1] = _mm256_unpackhi_epi64(t0, t2);
    r[2] = _mm256_unpacklo_epi64(t1, t3);
    r[3] = _mm256_unpackhi_epi64(t1, t3);
}

/// The even 16-bit elements and the odd ones as floats.
template <DType kType>
LYNX_INLINE void widen(__m256i pairs, __m256& even, __m256& odd) noexcept {
    if constexpr (kType == DType::kBF16) {
        even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
        odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    } else {
        const __m256i apart = _mm256_shuffle_epi8(
            pairs, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)));
        const __m256i halves = _mm256_permute4x64_epi64(apart, 0xd8);
        even = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
        odd = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    }
}

/// Coordinates 0-15 and second to second + 15 of two vectors: x[r] holds those whose lowest three index bits are
/// r, the bits above are the place in the lane.
template <DType kType>
LYNX_INLINE void load_unit(const std::byte* a, const std::byte* b, std::size_t second, __m256* x) noexcept {
    constexpr std::size_t kSize = kType == DType::kF32 ? 4 : 2;
    const std::size_t at[4] = {0, 8 * kSize, second * kSize, (second + 8) * kSize};
    if constexpr (kType == DType::kF32) {
        for (std::size_t part = 0; part < 2; ++part) {
            __m256i r[4];
            for (std::size_t i = 0; i < 4; ++i) r[i] = load_lanes(a + at[i] + 16 * part, b + at[i] + 16 * part);
            transpose_dwords(r);
            for (std::size_t i = 0; i < 4; ++i) x[4 * part + i] = _mm256_castsi256_ps(r[i]);
        }
    } else {
        __m256i r[4];
        for (std::size_t i = 0; i < 4; ++i) r[i] = load_lanes(a + at[i], b + at[i]);
        transpose_dwords(r);
        for (std::size_t i = 0; i < 4; ++i) widen<kType>(r[i], x[2 * i], x[2 * i + 1]);
    }
}

/// a, b = a + b, a - b. By way of a product with 1, which is exact: the multipliers share the adders' work.
LYNX_INLINE void butterfly(__m256& a, __m256& b) noexcept {
    const __m256 sum = _mm256_add_ps(a, b);
    b = _mm256_fnmadd_ps(b, _mm256_set1_ps(1.0f), a);
    a = sum;
}

/// The lowest index bit of the lanes' places becomes the one that tells a from b, and the reverse.
LYNX_INLINE void swap_lowest(__m256& a, __m256& b) noexcept {
    const __m256 even = _mm256_shuffle_ps(a, b, 0x88);
    b = _mm256_shuffle_ps(a, b, 0xdd);
    a = even;
}

/// The stages within 32 coordinates (16, for blocks of 16) of two vectors, to y in natural order.
template <DType kType, unsigned kLog2>
LYNX_INLINE void rotate_unit(const std::byte* a, const std::byte* b, std::size_t second, float* y) noexcept {
    __m256 x[8];
    load_unit<kType>(a, b, second, x);
#pragma GCC unroll 3
    for (std::size_t h = 1; h < 8; h *= 2)
#pragma GCC unroll 8
        for (std::size_t i = 0; i < 8; ++i)
            if ((i & h) == 0) butterfly(x[i], x[i + h]);
#pragma GCC unroll 2
    for (std::size_t h = 1; h < 4; h *= 2)
#pragma GCC unroll 8
        for (std::size_t i = 0; i < 8; ++i) {
            if ((i & h) != 0) continue;
            swap_lowest(x[i], x[i + h]);
            if (h == 1 || kLog2 > 4) butterfly(x[i], x[i + h]);
        }
    // x's index bits are 3, 4 and 2 of the coordinate by now.
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) _mm256_store_ps(y + 8 * (2 * (i & 3) + (i >> 2)), x[i]);
}

/// What two vectors' coordinates span, in each lane. A NaN does not show in low and high, but it does in poison.
struct Span {
    __m256 low = _mm256_set1_ps(__builtin_inff());
    __m256 high = _mm256_set1_ps(-__builtin_inff());
    __m256 poison = _mm256_setzero_ps();
};

/// Adds kCount registers, where those from kCount / 2 on are the last stage's differences. Where one of a sum and
/// its difference is a NaN and the other is not, that one is an infinity: so the sums show every NaN.
template <std::size_t kCount>
LYNX_INLINE void widen_span(const __m256* x, Span& span) noexcept {
    __m256 low[kCount];
    __m256 high[kCount];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kCount; ++i) low[i] = high[i] = x[i];
#pragma GCC unroll 3
    for (std::size_t h = kCount / 2; h > 0; h /= 2)
#pragma GCC unroll 4
        for (std::size_t i = 0; i < h; ++i) {
            low[i] = _mm256_min_ps(low[i], low[i + h]);
            high[i] = _mm256_max_ps(high[i], high[i + h]);
        }
    span.low = _mm256_min_ps(low[0], span.low);
    span.high = _mm256_max_ps(high[0], span.high);
#pragma GCC unroll 2
    for (std::size_t i = 0; i < kCount / 2; i += 2) span.poison = _mm256_fmadd_ps(x[i], x[i + 1], span.poison);
}

/// The stages that pair the units of a block, kRadix units that are kStride apart; after the last ones, the span.
template <std::size_t kRadix, std::size_t kStride, bool kLast>
LYNX_INLINE void rotate_across(float* y, Span& span) noexcept {
    // Columns at a time: what is left to do to a single one of two would not fill the CPU.
    constexpr std::size_t kColumns = kRadix >= 4 ? 1 : 2;
    for (std::size_t r = 0; r < 8; r += kColumns) {
        __m256 x[kRadix * kColumns];
#pragma GCC unroll 8
        for (std::size_t i = 0; i < kRadix * kColumns; ++i)
            x[i] = _mm256_load_ps(y + 8 * (r + i % kColumns) + i / kColumns * kStride * kUnitFloats);
#pragma GCC unroll 3
        for (std::size_t h = kColumns; h < kRadix * kColumns; h *= 2)
#pragma GCC unroll 8
            for (std::size_t i = 0; i < kRadix * kColumns; ++i)
                if ((i & h) == 0) butterfly(x[i], x[i + h]);
#pragma GCC unroll 8
        for (std::size_t i = 0; i < kRadix * kColumns; ++i)
            _mm256_store_ps(y + 8 * (r + i % kColumns) + i / kColumns * kStride * kUnitFloats, x[i]);
        if (kLast) widen_span<kRadix * kColumns>(x, span);
    }
}

/// The first five stages of both vectors (four, for blocks of 16), unit behind unit, to y.
template <DType kType, unsigned kLog2>
LYNX_INLINE void rotate_units(const std::byte* a, const std::byte* b, std::ptrdiff_t ahead, std::size_t head_dim,
                              float* y) noexcept {
    constexpr std::size_t kSize = kType == DType::kF32 ? 4 : 2;
    for (std::size_t at = 0; at < head_dim; at += kUnit) {
        // An odd last block of 16 is taken twice: that changes no minimum.
        const std::size_t second = kLog2 == 4 && at + 16 == head_dim ? 0 : 16;
        for (std::size_t line = 0; line < kUnit * kSize; line += 64) {
            prefetch(a + at * kSize + line, ahead);
            prefetch(b + at * kSize + line, ahead);
        }
        rotate_unit<kType, kLog2>(a + at * kSize, b + at * kSize, second, y + 2 * at);
    }
}

/// The other stages. Without the factor, which the range and the codes apply.
template <unsigned kLog2>
LYNX_INLINE Span rotate_blocks(std::size_t head_dim, float* y) noexcept {
    constexpr std::size_t kStep = kLog2 > 5 ? std::size_t{1} << kLog2 : kUnit;
    Span span;
    for (std::size_t at = 0; at < head_dim; at += kStep) {
        float* block = y + 2 * at;
        if constexpr (kLog2 <= 5) {
            // No stage is left. With each register twice all of them are taken for sums.
            for (std::size_t r = 0; r < 8; r += 2) {
                const __m256 x = _mm256_load_ps(block + 8 * r);
                const __m256 z = _mm256_load_ps(block + 8 * r + 8);
                const __m256 twice[4] = {x, z, x, z};
                widen_span<4>(twice, span);
            }
        } else if constexpr (kLog2 <= 8) {
            rotate_across<1u << (kLog2 - 5), 1, true>(block, span);
        } else {
            for (std::size_t eight = 0; eight < kStep; eight += 8 * kUnit)
                rotate_across<8, 1, false>(block + 2 * eight, span);
            for (std::size_t i = 0; i < 8; ++i)
                rotate_across<1u << (kLog2 - 8), 8, true>(block + i * kUnitFloats, span);
        }
    }
    return span;
}

}  // namespace
}  // namespace lynx::codec
