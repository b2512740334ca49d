// The forward rotation with AVX-512: sixteen vectors at a time, one in each 32-bit lane, so that loading transposes
// and all the rest is vertical.
#pragma once

#include "codec/avx512.hpp"
#include "codec/prefetch.hpp"

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): places within a batch, all below 2^16
namespace lynx::codec::avx512 {

/// Where the vectors of a batch are; lanes beyond the last vector repeat it.
struct Batch {
    const std::byte* vectors[kBatch];
    std::uintptr_t ahead;  ///< from a vector to the one to fetch in its turn, in bytes
};

template <DType kType>
LYNX_ALWAYS_INLINE Batch batch_of(const EncodeJob& job, std::size_t head_dim, std::size_t first) noexcept {
    const std::size_t bytes = head_dim * kSizeOf<kType>;
    const std::size_t ahead = bytes * kBatch < kPrefetchBytes ? kPrefetchBytes / bytes : kBatch;
    const std::size_t last = job.vectors - first - 1;
    Batch batch;
    batch.ahead = static_cast<std::uintptr_t>(job.src_step) * ahead;
    for (std::size_t v = 0; v < kBatch; ++v)
        batch.vectors[v] = job.src + static_cast<std::ptrdiff_t>(first + (v < last ? v : last)) * job.src_step;
    return batch;
}

// ---- Loading ---------------------------------------------------------------------------------------------

LYNX_ALWAYS_INLINE __m256i load_256(const std::byte* p) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
LYNX_ALWAYS_INLINE __m128i load_128(const std::byte* p) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// Sixteen 16-bit elements of sixteen vectors: words[m] holds the elements 2 m and 2 m + 1.
LYNX_ALWAYS_INLINE void load_pairs(const Batch& batch, std::size_t offset, __m512i (&words)[8]) noexcept {
    __m512i a[8];
    __m512i b[8];
    // a[r]: vector r' in the lower half and r' + 4 in the upper, r' = r for r < 4 and r + 4 for the others.
#pragma GCC unroll 8
    for (unsigned r = 0; r < 8; ++r) {
        const std::size_t v = r < 4 ? r : r + 4;
        a[r] = _mm512_inserti64x4(_mm512_castsi256_si512(load_256(batch.vectors[v] + offset)),
                                  load_256(batch.vectors[v + 4] + offset), 1);
    }
    // Each round trades a bit of the register's number for one of the place in it.
#pragma GCC unroll 8
    for (unsigned r = 0; r < 8; ++r) {
        const unsigned low = r & 5u;
        b[r] = (r & 2u) == 0 ? _mm512_unpacklo_epi32(a[low], a[low | 2u]) : _mm512_unpackhi_epi32(a[low], a[low | 2u]);
    }
#pragma GCC unroll 8
    for (unsigned r = 0; r < 8; ++r) {
        const unsigned low = r & 6u;
        a[r] = (r & 1u) == 0 ? _mm512_unpacklo_epi32(b[low], b[low | 1u]) : _mm512_unpackhi_epi32(b[low], b[low | 1u]);
    }
#pragma GCC unroll 8
    for (unsigned r = 0; r < 4; ++r) {
        words[r] = _mm512_shuffle_i32x4(a[r], a[r | 4u], 0x88);
        words[r | 4u] = _mm512_shuffle_i32x4(a[r], a[r | 4u], 0xdd);
    }
}

// The lines at this coordinate of a later batch. The hardware's own prefetching does not keep up: it finds sixteen
// places read in turns.
template <DType kType>
LYNX_ALWAYS_INLINE void prefetch_later(const Batch& batch, std::size_t coordinate) noexcept {
    if (coordinate * kSizeOf<kType> % 64 != 0) return;
    // The addresses may lie outside of the tensor: these are no accesses.
    const std::uintptr_t offset = batch.ahead + coordinate * kSizeOf<kType>;
#pragma GCC unroll 16
    for (unsigned v = 0; v < kBatch; ++v) prefetch(batch.vectors[v], static_cast<std::ptrdiff_t>(offset));
}

template <DType kType>
LYNX_ALWAYS_INLINE void load_16(const Batch& batch, std::size_t coordinate, __m512 (&x)[16]) noexcept {
    if constexpr (kType == DType::kF32) {
        const std::size_t offset = 4 * coordinate;
#pragma GCC unroll 4
        for (unsigned quad = 0; quad < 4; ++quad) {
            __m512 a[4];
#pragma GCC unroll 4
            for (unsigned r = 0; r < 4; ++r) {
                const std::size_t at = offset + 16 * quad;
                __m512i lanes = _mm512_castsi128_si512(load_128(batch.vectors[r] + at));
                lanes = _mm512_inserti32x4(lanes, load_128(batch.vectors[r + 4] + at), 1);
                lanes = _mm512_inserti32x4(lanes, load_128(batch.vectors[r + 8] + at), 2);
                lanes = _mm512_inserti32x4(lanes, load_128(batch.vectors[r + 12] + at), 3);
                a[r] = _mm512_castsi512_ps(lanes);
            }
            const __m512 low02 = _mm512_unpacklo_ps(a[0], a[2]);
            const __m512 low13 = _mm512_unpacklo_ps(a[1], a[3]);
            const __m512 high02 = _mm512_unpackhi_ps(a[0], a[2]);
            const __m512 high13 = _mm512_unpackhi_ps(a[1], a[3]);
            x[4 * quad] = _mm512_unpacklo_ps(low02, low13);
            x[4 * quad + 1] = _mm512_unpackhi_ps(low02, low13);
            x[4 * quad + 2] = _mm512_unpacklo_ps(high02, high13);
            x[4 * quad + 3] = _mm512_unpackhi_ps(high02, high13);
        }
    } else {
        __m512i words[8];
        load_pairs(batch, 2 * coordinate, words);
#pragma GCC unroll 8
        for (unsigned m = 0; m < 8; ++m) {
            if constexpr (kType == DType::kBF16) {
                x[2 * m] = _mm512_castsi512_ps(_mm512_slli_epi32(words[m], 16));
                x[2 * m + 1] =
                    _mm512_castsi512_ps(_mm512_and_si512(words[m], _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
            } else {
                x[2 * m] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words[m]));
                x[2 * m + 1] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words[m], 16)));
            }
        }
    }
}

// ---- Rotation --------------------------------------------------------------------------------------------

// The stages h = 1, 2, ... kCount / 2 on registers. The difference comes from the multiplier, with the same single
// rounding, because the adders have the more to do.
template <unsigned kCount, unsigned kBlock = kCount>
LYNX_ALWAYS_INLINE void butterfly(__m512 (&x)[kCount]) noexcept {
    const __m512 one = _mm512_set1_ps(1.0f);
#pragma GCC unroll 4
    for (unsigned h = 1; h < kBlock; h *= 2) {
#pragma GCC unroll 16
        for (unsigned i = 0; i < kCount; ++i) {
            if ((i & h) != 0) continue;
            const __m512 a = x[i];
            const __m512 b = x[i + h];
            x[i] = _mm512_add_ps(a, b);
            x[i + h] = _mm512_fnmadd_ps(b, one, a);
        }
    }
}

struct Range {
    __m512 low;
    __m512 high;
};

// By a tree: one after the other would wait for the latency of each.
template <unsigned kCount>
LYNX_ALWAYS_INLINE void widen(Range& range, const __m512 (&x)[kCount]) noexcept {
    __m512 low[kCount / 2];
    __m512 high[kCount / 2];
#pragma GCC unroll 8
    for (unsigned i = 0; i < kCount / 2; ++i) {
        low[i] = _mm512_min_ps(x[2 * i], x[2 * i + 1]);
        high[i] = _mm512_max_ps(x[2 * i], x[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (unsigned count = kCount / 4; count > 0; count /= 2) {
#pragma GCC unroll 4
        for (unsigned i = 0; i < count; ++i) {
            low[i] = _mm512_min_ps(low[2 * i], low[2 * i + 1]);
            high[i] = _mm512_max_ps(high[2 * i], high[2 * i + 1]);
        }
    }
    range.low = _mm512_min_ps(range.low, low[0]);
    range.high = _mm512_max_ps(range.high, high[0]);
}

// The stages h = kFirst, 2 kFirst, ... kFirst * kRadix / 2, in memory.
template <unsigned kFirst, unsigned kRadix, bool kLast>
LYNX_ALWAYS_INLINE void rotate_in_memory(__m512* y, std::size_t head_dim, Range& range) noexcept {
    for (std::size_t block = 0; block < head_dim; block += kFirst * kRadix) {
        for (std::size_t c = block; c < block + kFirst; ++c) {
            __m512 x[kRadix];
#pragma GCC unroll 16
            for (unsigned r = 0; r < kRadix; ++r) x[r] = y[c + r * kFirst];
            butterfly(x);
            if constexpr (kLast) widen(range, x);
#pragma GCC unroll 16
            for (unsigned r = 0; r < kRadix; ++r) y[c + r * kFirst] = x[r];
        }
    }
}

// H x without the factor.
template <DType kType, unsigned kBlock>
LYNX_ALWAYS_INLINE Range rotate(const Batch& batch, std::size_t head_dim, __m512* y) noexcept {
    Range range{_mm512_set1_ps(__builtin_inff()), _mm512_set1_ps(-__builtin_inff())};
    for (std::size_t c = 0; c < head_dim; c += 16) {
        __m512 x[16];
        load_16<kType>(batch, c, x);
        prefetch_later<kType>(batch, c);
        butterfly(x);
        if constexpr (kBlock == 16) widen(range, x);
#pragma GCC unroll 16
        for (unsigned i = 0; i < 16; ++i) y[c + i] = x[i];
    }
    if constexpr (kBlock > 256) rotate_in_memory<16, kBlock / 256, false>(y, head_dim, range);
    if constexpr (kBlock > 16)
        rotate_in_memory<(kBlock > 256 ? kBlock / 16 : 16), (kBlock > 256 ? 16 : kBlock / 16), true>(y, head_dim,
                                                                                                     range);
    return range;
}

}  // namespace lynx::codec::avx512
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
