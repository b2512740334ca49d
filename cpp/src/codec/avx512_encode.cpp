// Encoding with AVX-512: sixteen vectors at a time, one in each 32-bit lane, so that the rotation, the range and
// the scale are plain vertical arithmetic. Sub-steps hand over through scratch memory in the first-level cache.
#include <cstring>

#include "codec/avx512.hpp"
#include "codec/rotation.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx::codec::avx512 {
namespace {

// What a batch of sixteen vectors leaves on its way; coordinates in order, a register's lanes are the vectors.
template <std::size_t kMost>
struct alignas(64) Scratch {
    __m512 rotated[kMost <= 128 ? 2 : 1][kMost];
    // codes[h][j]: the codes 8 j ... 8 j + 7 of the vectors 8 h ... 8 h + 7, each in a 64-bit word, the last first.
    __m512i codes[2][kMost / 8];
    // rows[g][p]: of eight vectors the bytes 8 g ... 8 g + 7 of their row in plane p.
    __m512i rows[kMost / 64][kPlaneCount];
    // Planes of what is not written in place.
    std::byte planes[kPlaneCount][kBatch * kMost / 8 + 8];
};

struct Batch {
    const std::byte* src;
    std::ptrdiff_t step;
    std::size_t last;  // of the vectors; lanes beyond it repeat it

    LYNX_ALWAYS_INLINE const std::byte* vector(std::size_t v) const noexcept {
        return src + static_cast<std::ptrdiff_t>(v < last ? v : last) * step;
    }
};

// ---- Loading, transposed ---------------------------------------------------------------------------------

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
        a[r] = _mm512_inserti64x4(_mm512_castsi256_si512(load_256(batch.vector(v) + offset)),
                                  load_256(batch.vector(v + 4) + offset), 1);
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
LYNX_ALWAYS_INLINE void prefetch_later(const Batch& batch, std::size_t head_dim, std::size_t coordinate) noexcept {
    if (coordinate * kSizeOf<kType> % 64 != 0) return;
    const std::size_t ahead =
        head_dim * kSizeOf<kType> * kBatch < kPrefetchBytes ? kPrefetchBytes / (head_dim * kSizeOf<kType>) : kBatch;
    auto address = reinterpret_cast<std::uintptr_t>(batch.src) + static_cast<std::uintptr_t>(batch.step) * ahead +
                   coordinate * kSizeOf<kType>;
#pragma GCC unroll 16
    for (unsigned v = 0; v < kBatch; ++v, address += static_cast<std::uintptr_t>(batch.step))
        _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
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
                __m512i lanes = _mm512_castsi128_si512(load_128(batch.vector(r) + at));
                lanes = _mm512_inserti32x4(lanes, load_128(batch.vector(r + 4) + at), 1);
                lanes = _mm512_inserti32x4(lanes, load_128(batch.vector(r + 8) + at), 2);
                lanes = _mm512_inserti32x4(lanes, load_128(batch.vector(r + 12) + at), 3);
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
        prefetch_later<kType>(batch, head_dim, c);
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

// ---- Quantization ----------------------------------------------------------------------------------------

struct ScaleZero {
    __m256i scale;  // fp16
    __m256i zero;
    __m512 inverse;   // of the scale, 0 where that is 0; in units of the rotation without its factor
    __m512 offset;    // the zero in these units
    __mmask16 plain;  // the vectors whose range is that of fp16, without a NaN as far as the range shows
};

LYNX_ALWAYS_INLINE ScaleZero scale_zero_of(Range range, float factor) noexcept {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512 most_half = _mm512_set1_ps(65504.0f);
    const __m512 low = _mm512_mul_ps(range.low, _mm512_set1_ps(factor));
    const __m512 high = _mm512_mul_ps(range.high, _mm512_set1_ps(factor));
    const __m512 step = _mm512_div_ps(_mm512_sub_ps(high, low), _mm512_set1_ps(255.0f));
    ScaleZero out;
    out.plain = _mm512_cmp_ps_mask(_mm512_abs_ps(low), most_half, _CMP_LE_OQ) &
                _mm512_cmp_ps_mask(_mm512_abs_ps(high), most_half, _CMP_LE_OQ);
    out.scale = _mm512_cvtps_ph(step, kNearest);
    out.zero = _mm512_cvtps_ph(low, kNearest);
    out.zero =
        _mm256_andnot_si256(_mm256_cmpeq_epi16(out.zero, _mm256_set1_epi16(static_cast<short>(0x8000))), out.zero);
    const __m512 scale = _mm512_cvtph_ps(out.scale);
    const __mmask16 spread = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    out.inverse = _mm512_mul_ps(_mm512_maskz_div_ps(spread, _mm512_set1_ps(1.0f), scale), _mm512_set1_ps(factor));
    out.offset = _mm512_mul_ps(_mm512_cvtph_ps(out.zero), _mm512_set1_ps(1.0f / factor));
    return out;
}

// How the vectors of a half batch lie in a register's 64-bit words: the order that the next step wants.
enum class Order { kNatural, k128, k256 };

constexpr unsigned vector_at(Order order, unsigned word) {
    switch (order) {
        case Order::kNatural: return word;
        case Order::k128: return (word & 1u) << 2 | word >> 1;
        case Order::k256: return (word & 1u) << 2 | (word & 2u) | word >> 2;
    }
    return 0;
}

// Codes of eight coordinates, four in each of two registers and a 128-bit lane for four vectors, to a word for each
// vector with the last coordinate first.
template <Order kOrder, unsigned kHalf>
LYNX_ALWAYS_INLINE __m512i word_table() noexcept {
    static constexpr ByteTable kTable = byte_table([](unsigned i) {
        const unsigned v = 8 * kHalf + vector_at(kOrder, i / 8);
        const unsigned c = 7 - i % 8;
        return c / 4 * 64 + v / 4 * 16 + c % 4 * 4 + v % 4;
    });
    return load_table(kTable);
}

// Returns whether any code was negative: so it is if a vector holds what is no number, but not only then.
template <Order kOrder, class Scratch>
LYNX_ALWAYS_INLINE bool quantize(const __m512* rotated, const ScaleZero& sz, std::size_t head_dim,
                                 Scratch& scratch) noexcept {
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512i first_half = word_table<kOrder, 0>();
    const __m512i second_half = word_table<kOrder, 1>();
    __m512i signs = _mm512_setzero_si512();
    for (std::size_t j = 0; j < head_dim / 8; ++j) {
        __m512i codes[8];
#pragma GCC unroll 8
        for (unsigned i = 0; i < 8; ++i) {
            const __m512 above = _mm512_fmsub_ps(rotated[8 * j + i], one, sz.offset);
            codes[i] = _mm512_cvtps_epi32(_mm512_mul_ps(above, sz.inverse));
        }
        const __m512i c01 = _mm512_packs_epi32(codes[0], codes[1]);
        const __m512i c23 = _mm512_packs_epi32(codes[2], codes[3]);
        const __m512i c45 = _mm512_packs_epi32(codes[4], codes[5]);
        const __m512i c67 = _mm512_packs_epi32(codes[6], codes[7]);
        signs = _mm512_ternarylogic_epi32(signs, c01, c23, 0xfe);
        signs = _mm512_ternarylogic_epi32(signs, c45, c67, 0xfe);
        const __m512i low = _mm512_packus_epi16(c01, c23);
        const __m512i high = _mm512_packus_epi16(c45, c67);
        scratch.codes[0][j] = _mm512_permutex2var_epi8(low, first_half, high);
        scratch.codes[1][j] = _mm512_permutex2var_epi8(low, second_half, high);
    }
    return _mm512_movepi16_mask(signs) != 0;
}

LYNX_ALWAYS_INLINE __mmask16 finite_lanes(const __m512* y, std::size_t head_dim) noexcept {
    const __m512 infinity = _mm512_set1_ps(__builtin_inff());
    __mmask16 finite = 0xffff;
    for (std::size_t c = 0; c < head_dim; ++c) finite &= _mm512_cmp_ps_mask(_mm512_abs_ps(y[c]), infinity, _CMP_LT_OQ);
    return finite;
}

// ---- Planes ----------------------------------------------------------------------------------------------

// In a lane: the plane's two low bits, which of the lane's words, which register.
template <unsigned kUpper>
LYNX_ALWAYS_INLINE __m512i split_table() noexcept {
    static constexpr ByteTable kTable = byte_table(
        [](unsigned i) { return (i & 1u) << 6 | (i & 0x30u) | (i >> 1 & 1u) << 3 | kUpper << 2 | (i >> 2 & 3u); });
    return load_table(kTable);
}

// Eight words of codes of eight vectors to the vectors' eight bytes in each plane.
template <unsigned kWords>
LYNX_ALWAYS_INLINE void split(const __m512i* codes, __m512i (&rows)[8]) noexcept {
    // Byte p of a word becomes bit 7 - p of each of its codes: plane p.
    const __m512i bits = _mm512_set1_epi64(0x0102040810204080);
    const __m512i lower = split_table<0>();
    const __m512i upper = split_table<1>();
    __m512i a[8];
    __m512i b[8];
#pragma GCC unroll 8
    for (unsigned j = 0; j < 8; ++j)
        a[j] = j < kWords ? _mm512_gf2p8affine_epi64_epi8(bits, codes[j], 0) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (unsigned j = 0; j < 4; ++j) {
        b[j] = _mm512_permutex2var_epi8(a[j], lower, a[j | 4u]);
        b[j | 4u] = _mm512_permutex2var_epi8(a[j], upper, a[j | 4u]);
    }
#pragma GCC unroll 8
    for (unsigned r = 0; r < 8; ++r) {
        const unsigned low = r & 5u;
        a[r] = (r & 2u) == 0 ? _mm512_unpacklo_epi8(b[low], b[low | 2u]) : _mm512_unpackhi_epi8(b[low], b[low | 2u]);
    }
#pragma GCC unroll 8
    for (unsigned r = 0; r < 8; ++r) {
        const unsigned low = r & 6u;
        rows[r] = (r & 1u) == 0 ? _mm512_unpacklo_epi8(a[low], a[low | 1u]) : _mm512_unpackhi_epi8(a[low], a[low | 1u]);
    }
}

template <bool kStream, class Scratch>
LYNX_ALWAYS_INLINE void store_planes_64(const Scratch& scratch, std::byte* planes, std::size_t step) noexcept {
    for (unsigned half = 0; half < 2; ++half) {
        __m512i rows[8];
        split<8>(scratch.codes[half], rows);
#pragma GCC unroll 8
        for (unsigned p = 0; p < 8; ++p) store_line<kStream>(planes + p * step + 64 * half, rows[p]);
    }
}

template <bool kStream, class Scratch>
LYNX_ALWAYS_INLINE void store_planes_128(const Scratch& scratch, std::byte* planes, std::size_t step) noexcept {
    for (unsigned half = 0; half < 2; ++half) {
        __m512i low[8];
        __m512i high[8];
        split<8>(scratch.codes[half], low);
        split<8>(scratch.codes[half] + 8, high);
#pragma GCC unroll 8
        for (unsigned p = 0; p < 8; ++p) {
            std::byte* to = planes + p * step + 128 * half;
            store_line<kStream>(to, _mm512_unpacklo_epi64(low[p], high[p]));
            store_line<kStream>(to + 64, _mm512_unpackhi_epi64(low[p], high[p]));
        }
    }
}

template <bool kStream, class Scratch>
LYNX_ALWAYS_INLINE void store_planes_256(Scratch& scratch, std::byte* planes, std::size_t step) noexcept {
    const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    for (unsigned half = 0; half < 2; ++half) {
        for (unsigned g = 0; g < 4; ++g) split<8>(scratch.codes[half] + 8 * g, scratch.rows[g]);
#pragma GCC unroll 8
        for (unsigned p = 0; p < 8; ++p) {
            const auto& rows = scratch.rows;
            std::byte* to = planes + p * step + 256 * half;
            const __m512i low0 = _mm512_unpacklo_epi64(rows[0][p], rows[1][p]);
            const __m512i low1 = _mm512_unpackhi_epi64(rows[0][p], rows[1][p]);
            const __m512i high0 = _mm512_unpacklo_epi64(rows[2][p], rows[3][p]);
            const __m512i high1 = _mm512_unpackhi_epi64(rows[2][p], rows[3][p]);
            store_line<kStream>(to, _mm512_permutex2var_epi64(low0, even, high0));
            store_line<kStream>(to + 64, _mm512_permutex2var_epi64(low0, odd, high0));
            store_line<kStream>(to + 128, _mm512_permutex2var_epi64(low1, even, high1));
            store_line<kStream>(to + 192, _mm512_permutex2var_epi64(low1, odd, high1));
        }
    }
}

// Any multiple of 16, a word of each vector's row at a time; the last of a row may reach into the next row, which is
// written later, and beyond the last row by up to seven bytes.
template <class Scratch>
LYNX_ALWAYS_INLINE void store_planes_any(Scratch& scratch, std::size_t head_dim, std::byte* planes,
                                         std::size_t step) noexcept {
    const std::size_t row_bytes = head_dim / 8;
    const std::size_t whole = row_bytes / 8;
    const std::size_t groups = (row_bytes + 7) / 8;
    for (unsigned half = 0; half < 2; ++half) {
        for (std::size_t g = 0; g < whole; ++g) split<8>(scratch.codes[half] + 8 * g, scratch.rows[g]);
        const __m512i* rest = scratch.codes[half] + 8 * whole;
        if (row_bytes % 8 == 2) split<2>(rest, scratch.rows[whole]);
        if (row_bytes % 8 == 4) split<4>(rest, scratch.rows[whole]);
        if (row_bytes % 8 == 6) split<6>(rest, scratch.rows[whole]);
        for (unsigned p = 0; p < 8; ++p) {
            std::byte* row = planes + p * step + 8 * half * row_bytes;
            for (unsigned v = 0; v < 8; ++v, row += row_bytes)
                for (std::size_t g = 0; g < groups; ++g)
                    std::memcpy(row + 8 * g, reinterpret_cast<const std::byte*>(&scratch.rows[g][p]) + 8 * v, 8);
        }
    }
}

// ---- Whole jobs ------------------------------------------------------------------------------------------

// What to do with the planes: straight to their place, past the caches, or by way of the scratch memory.
enum class Target { kPlace, kStream, kScratch };

template <unsigned kHeadDim>
constexpr Order order_of() {
    return kHeadDim == 128 ? Order::k128 : kHeadDim == 256 ? Order::k256 : Order::kNatural;
}

template <unsigned kHeadDim, bool kStream, class Scratch>
LYNX_ALWAYS_INLINE void store_planes(Scratch& scratch, std::size_t head_dim, std::byte* planes,
                                     std::size_t step) noexcept {
    if constexpr (kHeadDim == 64)
        store_planes_64<kStream>(scratch, planes, step);
    else if constexpr (kHeadDim == 128)
        store_planes_128<kStream>(scratch, planes, step);
    else if constexpr (kHeadDim == 256)
        store_planes_256<kStream>(scratch, planes, step);
    else
        store_planes_any(scratch, head_dim, planes, step);
}

// A batch that is rotated and has its scales, but not its codes yet.
struct Rotated {
    std::size_t first;
    std::size_t count;
    const __m512* values;
    ScaleZero sz;
};

template <DType kType, unsigned kBlock>
LYNX_ALWAYS_INLINE Rotated rotate_batch(const EncodeJob& job, std::size_t head_dim, std::size_t first,
                                        __m512* values) noexcept {
    const std::byte* src = job.src + static_cast<std::ptrdiff_t>(first) * job.src_step;
    const std::size_t left = job.vectors - first;
    Rotated out{first, left < kBatch ? left : kBatch, values, {}};
    // Twice, so that whole batches look at no vector's number.
    const Range range = left >= kBatch ? rotate<kType, kBlock>({src, job.src_step, kBatch - 1}, head_dim, values)
                                       : rotate<kType, kBlock>({src, job.src_step, left - 1}, head_dim, values);
    out.sz = scale_zero_of(range, forward_factor(log2_block(kBlock)));
    return out;
}

// Returns the vectors that the scalar kernel has to do again: not finite, or out of the range in which the
// conversion to integers is that of the format.
template <unsigned kHeadDim, class Scratch>
LYNX_ALWAYS_INLINE __mmask16 quantize_batch(const EncodeJob& job, std::size_t head_dim, const Rotated& batch,
                                            Target target, Scratch& scratch) noexcept {
    const std::size_t row_bytes = head_dim / 8;
    __mmask16 plain = batch.sz.plain;
    if (quantize<order_of<kHeadDim>()>(batch.values, batch.sz, head_dim, scratch))
        plain &= finite_lanes(batch.values, head_dim);

    const __mmask16 lanes = first_of_16(batch.count);
    _mm256_mask_storeu_epi16(job.scales + 2 * batch.first, lanes, batch.sz.scale);
    _mm256_mask_storeu_epi16(job.zeros + 2 * batch.first, lanes, batch.sz.zero);
    std::byte* planes = job.planes + batch.first * row_bytes;
    if (batch.count < kBatch) target = Target::kScratch;
    if (target == Target::kStream) {
        store_planes<kHeadDim, true>(scratch, head_dim, planes, job.plane_step);
    } else if (target == Target::kPlace) {
        store_planes<kHeadDim, false>(scratch, head_dim, planes, job.plane_step);
    } else {
        store_planes<kHeadDim, false>(scratch, head_dim, scratch.planes[0], sizeof scratch.planes[0]);
        for (unsigned p = 0; p < kPlaneCount; ++p)
            std::memcpy(planes + p * job.plane_step, scratch.planes[p], batch.count * row_bytes);
    }
    return static_cast<__mmask16>(~plain & lanes);
}

template <DType kType>
[[gnu::noinline]] std::size_t encode_again(const EncodeJob& job, std::size_t first, unsigned vectors) noexcept {
    std::size_t nonfinite = 0;
    for (; vectors != 0; vectors &= vectors - 1) {
        const std::size_t v = first + static_cast<std::size_t>(__builtin_ctz(vectors));
        EncodeJob one = job;
        one.src += static_cast<std::ptrdiff_t>(v) * job.src_step;
        one.vectors = 1;
        one.scales += 2 * v;
        one.zeros += 2 * v;
        one.planes += v * (job.head_dim / 8);
        nonfinite += kScalarKernels.encode[static_cast<std::size_t>(kType)](one);
    }
    return nonfinite;
}

// kHeadDim is 0 where it is not known at compile time.
template <DType kType, unsigned kBlock, unsigned kHeadDim>
std::size_t encode_blocks(const EncodeJob& job) noexcept {
    if (job.vectors == 0) return 0;
    const std::size_t head_dim = kHeadDim != 0 ? kHeadDim : job.head_dim;
    Scratch<kHeadDim == 0 ? kMaxHeadDim : kHeadDim> scratch;
    const bool stream = job.vectors * job.head_dim * kSizeOf<kType> >= kStreamBytes && is_line_aligned(job.planes) &&
                        job.plane_step % 64 == 0;
    const Target target = kHeadDim == 0 ? Target::kScratch : stream ? Target::kStream : Target::kPlace;
    std::size_t nonfinite = 0;
    // A batch is rotated before the one before it is quantized, which would else wait for its divisions; but two
    // batches of long vectors do not fit the first-level cache.
    constexpr bool kOverlap = kHeadDim == 64 || kHeadDim == 128;
    Rotated batch = rotate_batch<kType, kBlock>(job, head_dim, 0, scratch.rotated[0]);
    for (bool last = false; !last;) {
        const std::size_t next = batch.first + kBatch;
        last = next >= job.vectors;
        Rotated following = batch;
        unsigned again = 0;
        if constexpr (!kOverlap) again = quantize_batch<kHeadDim>(job, head_dim, batch, target, scratch);
        if (!last)
            following =
                rotate_batch<kType, kBlock>(job, head_dim, next, scratch.rotated[kOverlap ? next / kBatch % 2 : 0]);
        if constexpr (kOverlap) again = quantize_batch<kHeadDim>(job, head_dim, batch, target, scratch);
        if (again != 0) [[unlikely]]
            nonfinite += encode_again<kType>(job, batch.first, again);
        batch = following;
    }
    if (target == Target::kStream) _mm_sfence();
    return nonfinite;
}

template <DType kType>
std::size_t encode(const EncodeJob& job) noexcept {
    switch (job.head_dim) {
        case 64: return encode_blocks<kType, 64, 64>(job);
        case 128: return encode_blocks<kType, 128, 128>(job);
        case 256: return encode_blocks<kType, 256, 256>(job);
        default: break;
    }
    switch (log2_block(job.head_dim)) {
        case 4: return encode_blocks<kType, 16, 0>(job);
        case 5: return encode_blocks<kType, 32, 0>(job);
        case 6: return encode_blocks<kType, 64, 0>(job);
        case 7: return encode_blocks<kType, 128, 0>(job);
        case 8: return encode_blocks<kType, 256, 0>(job);
        case 9: return encode_blocks<kType, 512, 0>(job);
        case 10: return encode_blocks<kType, 1024, 0>(job);
        default: return kScalarKernels.encode[static_cast<std::size_t>(kType)](job);
    }
}

}  // namespace

std::size_t encode_bf16(const EncodeJob& job) noexcept {
    return encode<DType::kBF16>(job);
}
std::size_t encode_f16(const EncodeJob& job) noexcept {
    return encode<DType::kF16>(job);
}
std::size_t encode_f32(const EncodeJob& job) noexcept {
    return encode<DType::kF32>(job);
}

}  // namespace lynx::codec::avx512
