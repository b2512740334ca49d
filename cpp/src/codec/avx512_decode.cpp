// Decoding with AVX-512: planes are merged to codes for sixteen vectors, then each vector's blocks are transformed
// back, 64 coordinates at a time and in their order.
#include "codec/avx512.hpp"
#include "codec/avx512_merge.hpp"
#include "codec/rotation.hpp"
#include "lynx/plane_layout.hpp"

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): places within a batch, all below 2^16
namespace lynx::codec::avx512 {
namespace {

// ---- The inverse rotation --------------------------------------------------------------------------------

// Words of sums (c0 = 0) and differences (c0 = 1) in the order c5 c4 c3 c2 c1, to c5 c3 c2 c0 c4 in two registers
// that differ in c1.
template <unsigned kC1>
LYNX_ALWAYS_INLINE __m512i first_table() noexcept {
    static constexpr ByteTable kTable = byte_table([](unsigned i) {
        const unsigned w = i / 2;  // two bytes each, little-endian
        const unsigned c5 = w >> 4 & 1u;
        const unsigned c3 = w >> 3 & 1u;
        const unsigned c2 = w >> 2 & 1u;
        const unsigned c0 = w >> 1 & 1u;
        const unsigned c4 = w & 1u;
        const unsigned source = c0 << 5 | c5 << 4 | c4 << 3 | c3 << 2 | c2 << 1 | kC1;
        return i % 2 == 0 ? source : 0u;
    });
    return load_table(kTable);
}

struct Pair {
    __m512i even;
    __m512i odd;
};

LYNX_ALWAYS_INLINE Pair butterfly(__m512i a, __m512i b) noexcept {
    return {_mm512_add_epi16(a, b), _mm512_sub_epi16(a, b)};
}

// The sums over c0.
LYNX_ALWAYS_INLINE Pair sums_of_codes(const std::uint8_t* codes) noexcept {
    const __m512i c = _mm512_loadu_si512(codes);
    return {_mm512_maddubs_epi16(c, _mm512_set1_epi16(0x0101)),
            _mm512_maddubs_epi16(c, _mm512_set1_epi16(static_cast<short>(0xff01)))};
}

// The stages of c1, c2, c3 and, if the block reaches that far, c5 of 64 coordinates. Leaves words in the order
// c3 c2 c1 c0 c4, in two registers that differ in c5.
template <unsigned kBlock>
LYNX_ALWAYS_INLINE Pair transform_words(Pair p) noexcept {
    const __m512i c1_clear = first_table<0>();
    const __m512i c1_set = first_table<1>();
    p = butterfly(_mm512_permutex2var_epi16(p.even, c1_clear, p.odd), _mm512_permutex2var_epi16(p.even, c1_set, p.odd));
    p = butterfly(_mm512_unpacklo_epi64(p.even, p.odd), _mm512_unpackhi_epi64(p.even, p.odd));
    p = butterfly(_mm512_shuffle_i32x4(p.even, p.odd, 0x88), _mm512_shuffle_i32x4(p.even, p.odd, 0xdd));
    p = {_mm512_shuffle_i32x4(p.even, p.odd, 0x88), _mm512_shuffle_i32x4(p.even, p.odd, 0xdd)};
    if constexpr (kBlock >= 64) p = butterfly(p.even, p.odd);
    return p;
}

// The last stage, of c4, by products that are summed to 32 bits, on top of `base`. values: by c5 and c4.
template <unsigned kBlock>
LYNX_ALWAYS_INLINE void transform_to_32(Pair p, __m512i base, __m512i (&values)[4]) noexcept {
    const __m512i plus = _mm512_set1_epi32(kBlock >= 32 ? 0x00010001 : 0x00000001);
    const __m512i minus = _mm512_set1_epi32(static_cast<int>(kBlock >= 32 ? 0xffff0001u : 0x00010000u));
    values[0] = _mm512_dpwssd_epi32(base, p.even, plus);
    values[1] = _mm512_dpwssd_epi32(base, p.even, minus);
    values[2] = _mm512_dpwssd_epi32(base, p.odd, plus);
    values[3] = _mm512_dpwssd_epi32(base, p.odd, minus);
}

// An integer added to these bits is the mantissa of a float that is greater by 1.5 * 2^23.
constexpr float kBase = 0x1.8p23f;
constexpr int kBaseBits = 0x4b400000;

struct Factors {
    float factor[kBatch];
    float shift[kBatch];  // -kBase * factor, exact
    float bias[kBatch];
};

// x = factor * h. With a positive factor the sum's conversion is part of the product: exact up to its one rounding.
template <bool kFused>
LYNX_ALWAYS_INLINE __m512 scaled(__m512i value, __m512 factor, __m512 shift) noexcept {
    if constexpr (kFused) return _mm512_fmadd_ps(_mm512_castsi512_ps(value), factor, shift);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(value), factor);
}

// ---- Storing ---------------------------------------------------------------------------------------------

// The first `count` coordinates of 64, a multiple of 16.
template <DType kType, bool kStream>
LYNX_ALWAYS_INLINE void store_64(const __m512 (&x)[4], std::byte* to, std::size_t count) noexcept {
    if constexpr (kType == DType::kF32) {
#pragma GCC unroll 4
        for (unsigned i = 0; i < 4; ++i)
            if (16 * i < count) store_line<kStream>(to + 64 * i, _mm512_castps_si512(x[i]));
    } else {
#pragma GCC unroll 2
        for (unsigned i = 0; i < 2; ++i) {
            __m512i packed;
            if constexpr (kType == DType::kBF16) {
                // This instruction takes subnormals for zeros. There are none: fp16 scales and zeros are multiples of
                // 2^-24, so whatever is decoded from them is 0 or at least 2^-29.
                packed = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[2 * i + 1], x[2 * i]));
            } else {
                constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
                packed = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(x[2 * i], kNearest)),
                                            _mm512_cvtps_ph(x[2 * i + 1], kNearest), 1);
            }
            if (count >= 32 * i + 32)
                store_line<kStream>(to + 64 * i, packed);
            else if (count > 32 * i)
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 64 * i), _mm512_castsi512_si256(packed));
        }
    }
}

// ---- Blocks ----------------------------------------------------------------------------------------------

// 64 coordinates from the words that their block's upper stages left.
template <DType kType, unsigned kBlock, bool kFused, bool kStream>
LYNX_ALWAYS_INLINE void finish_64(Pair words, const Factors& f, std::size_t v, bool first, std::byte* to,
                                  std::size_t count) noexcept {
    const __m512 factor = _mm512_set1_ps(f.factor[v]);
    const __m512 shift = _mm512_set1_ps(f.shift[v]);
    __m512i values[4];
    transform_to_32<kBlock>(transform_words<kBlock>(words), _mm512_set1_epi32(kFused ? kBaseBits : 0), values);
    __m512 x[4];
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
        x[i] = scaled<kFused>(values[i], factor, shift);
        if (first && 16 * i % kBlock == 0) x[i] = _mm512_mask_add_ps(x[i], 1, x[i], _mm512_set1_ps(f.bias[v]));
    }
    store_64<kType, kStream>(x, to, count);
}

// One block of 64, 128 or 256, or 64 coordinates of smaller blocks.
template <DType kType, unsigned kBlock, bool kFused, bool kStream>
LYNX_ALWAYS_INLINE void decode_block(const std::uint8_t* codes, const Factors& f, std::size_t v, std::byte* to,
                                     std::size_t count) noexcept {
    constexpr unsigned kUnits = kBlock <= 64 ? 1 : kBlock / 64;
    Pair words[kUnits];
#pragma GCC unroll 4
    for (unsigned u = 0; u < kUnits; ++u) words[u] = sums_of_codes(codes + 64 * u);
#pragma GCC unroll 2
    for (unsigned h = 1; h < kUnits; h *= 2) {
#pragma GCC unroll 4
        for (unsigned u = 0; u < kUnits; ++u) {
            if ((u & h) != 0) continue;
            const Pair even = butterfly(words[u].even, words[u + h].even);
            const Pair odd = butterfly(words[u].odd, words[u + h].odd);
            words[u] = {even.even, odd.even};
            words[u + h] = {even.odd, odd.odd};
        }
    }
#pragma GCC unroll 4
    for (unsigned u = 0; u < kUnits; ++u)
        finish_64<kType, kBlock, kFused, kStream>(words[u], f, v, u == 0, to + 64 * u * kSizeOf<kType>, count);
}

// A block of 512 or 1,024: blocks of 256 to integers of 32 bits, whose stages follow in memory.
template <DType kType, unsigned kBlock>
[[gnu::noinline]] void decode_large_block(const std::uint8_t* codes, const Factors& f, std::size_t v,
                                          std::byte* to) noexcept {
    __m512i h[kBlock / 16];
    for (unsigned start = 0; start < kBlock; start += 64) {
        __m512i values[4];
        transform_to_32<64>(transform_words<64>(sums_of_codes(codes + start)), _mm512_setzero_si512(), values);
        for (unsigned i = 0; i < 4; ++i) h[start / 16 + i] = values[i];
    }
    for (unsigned step = 4; step < kBlock / 16; step *= 2) {
        for (unsigned i = 0; i < kBlock / 16; ++i) {
            if ((i & step) != 0) continue;
            const __m512i a = h[i];
            const __m512i b = h[i + step];
            h[i] = _mm512_add_epi32(a, b);
            h[i + step] = _mm512_sub_epi32(a, b);
        }
    }
    const __m512 factor = _mm512_set1_ps(f.factor[v]);
    for (unsigned start = 0; start < kBlock; start += 64) {
        __m512 x[4];
        for (unsigned i = 0; i < 4; ++i) x[i] = scaled<false>(h[start / 16 + i], factor, factor);
        if (start == 0) x[0] = _mm512_mask_add_ps(x[0], 1, x[0], _mm512_set1_ps(f.bias[v]));
        store_64<kType, false>(x, to + start * kSizeOf<kType>, 64);
    }
}

template <DType kType, unsigned kBlock, bool kFused, bool kStream>
LYNX_ALWAYS_INLINE void decode_vector(const std::uint8_t* codes, std::size_t head_dim, const Factors& f, std::size_t v,
                                      std::byte* to) noexcept {
    if constexpr (kBlock > 256) {
        for (std::size_t c = 0; c < head_dim; c += kBlock)
            decode_large_block<kType, kBlock>(codes + c, f, v, to + c * kSizeOf<kType>);
    } else if constexpr (kBlock >= 64) {
        for (std::size_t c = 0; c < head_dim; c += kBlock)
            decode_block<kType, kBlock, kFused, kStream>(codes + c, f, v, to + c * kSizeOf<kType>, 64);
    } else {
        for (std::size_t c = 0; c < head_dim; c += 64)
            decode_block<kType, kBlock, kFused, false>(codes + c, f, v, to + c * kSizeOf<kType>, head_dim - c);
    }
}

// ---- Whole jobs ------------------------------------------------------------------------------------------

template <std::size_t kMost>
struct alignas(64) Scratch {
    // The codes of a batch one vector behind the other, up to the end of the last 64 that a vector begins in.
    std::uint8_t codes[kBatch * kMost + 512];
    Factors factors;
};

template <unsigned kPlanes>
[[gnu::noinline]] void merge_batch(const PlaneReader& reader, std::size_t bytes, std::uint8_t* codes) noexcept {
    std::size_t offset = 0;
    for (; offset + 64 <= bytes; offset += 64) merge<kPlanes>(reader, offset, codes + 8 * offset);
    if (offset < bytes)
        merge<kPlanes>(reader, offset, codes + 8 * offset, (__mmask64{1} << (bytes - offset)) - 1);
    else
        _mm512_store_si512(codes + 8 * offset, _mm512_setzero_si512());
}

using MergeFn = void (*)(const PlaneReader&, std::size_t, std::uint8_t*) noexcept;
constexpr MergeFn kMergeBatch[] = {merge_batch<1>, merge_batch<2>, merge_batch<3>, merge_batch<4>,
                                   merge_batch<5>, merge_batch<6>, merge_batch<7>, merge_batch<8>};

// The arithmetic of reconstruction() in rotation.hpp, but for the missing bits: these are zeros in the codes here,
// so the factor is that of whole codes. Returns whether all scales are positive.
template <unsigned kBlock>
LYNX_ALWAYS_INLINE bool find_factors(const DecodeJob& job, std::size_t first, __mmask16 lanes, Factors& f) noexcept {
    constexpr float kFactor = inverse_factor(log2_block(kBlock));
    const __m256i scale_bits = _mm256_maskz_loadu_epi16(lanes, job.scales + 2 * first);
    const __m512 scale = _mm512_cvtph_ps(scale_bits);
    const __m512 zero = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, job.zeros + 2 * first));
    const auto missing_steps = static_cast<float>((1u << (kPlaneCount - job.plane_count)) - 1u);
    const __m512 middle = _mm512_mul_ps(scale, _mm512_set1_ps(missing_steps * 0.5f));
    const __m512 centre = _mm512_add_ps(zero, middle);
    const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(kFactor));
    _mm512_storeu_ps(f.factor, factor);
    _mm512_storeu_ps(f.shift, _mm512_mul_ps(factor, _mm512_set1_ps(-kBase)));
    _mm512_storeu_ps(f.bias, _mm512_mul_ps(centre, _mm512_set1_ps(static_cast<float>(kBlock) * kFactor)));
    return _mm256_mask_cmpgt_epi16_mask(lanes, scale_bits, _mm256_setzero_si256()) == lanes;
}

// kHeadDim is 0 where it is not known at compile time.
template <DType kType, unsigned kBlock, unsigned kHeadDim, bool kStream>
[[gnu::noinline]] void decode_blocks(const DecodeJob& job) noexcept {
    const std::size_t head_dim = kHeadDim != 0 ? kHeadDim : job.head_dim;
    const std::size_t row_bytes = head_dim / 8;
    const MergeFn merge_planes = kMergeBatch[job.plane_count - 1];
    Scratch<kHeadDim == 0 ? kMaxHeadDim : kHeadDim> scratch;
    for (std::size_t first = 0; first < job.vectors; first += kBatch) {
        const std::size_t count = job.vectors - first < kBatch ? job.vectors - first : kBatch;
        merge_planes({job.planes + first * row_bytes, job.plane_step}, count * row_bytes, scratch.codes);
        const bool positive = find_factors<kBlock>(job, first, first_of_16(count), scratch.factors);
        std::byte* to = job.dst + static_cast<std::ptrdiff_t>(first) * job.dst_step;
        if (positive) [[likely]] {
            for (std::size_t v = 0; v < count; ++v, to += job.dst_step)
                decode_vector<kType, kBlock, true, kStream>(scratch.codes + v * head_dim, head_dim, scratch.factors, v,
                                                            to);
        } else {
            for (std::size_t v = 0; v < count; ++v, to += job.dst_step)
                decode_vector<kType, kBlock, false, false>(scratch.codes + v * head_dim, head_dim, scratch.factors, v,
                                                           to);
        }
    }
    if (kStream) _mm_sfence();
}

template <DType kType, unsigned kBlock, unsigned kHeadDim>
LYNX_ALWAYS_INLINE void decode_as(const DecodeJob& job) noexcept {
    const bool stream = job.vectors * job.head_dim * kSizeOf<kType> >= kStreamBytes && is_line_aligned(job.dst) &&
                        job.dst_step % 64 == 0;
    if constexpr (kBlock >= 64 && kBlock <= 256)
        if (stream) return decode_blocks<kType, kBlock, kHeadDim, true>(job);
    return decode_blocks<kType, kBlock, kHeadDim, false>(job);
}

template <DType kType>
void decode(const DecodeJob& job) noexcept {
    switch (job.head_dim) {
        case 64: return decode_as<kType, 64, 64>(job);
        case 128: return decode_as<kType, 128, 128>(job);
        case 256: return decode_as<kType, 256, 256>(job);
        default: break;
    }
    switch (job.head_dim & -job.head_dim) {
        case 16: return decode_as<kType, 16, 0>(job);
        case 32: return decode_as<kType, 32, 0>(job);
        case 64: return decode_as<kType, 64, 0>(job);
        case 128: return decode_as<kType, 128, 0>(job);
        case 256: return decode_as<kType, 256, 0>(job);
        case 512: return decode_as<kType, 512, 0>(job);
        case 1024: return decode_as<kType, 1024, 0>(job);
        default: return kScalarKernels.decode[static_cast<std::size_t>(kType)](job);
    }
}

}  // namespace

void decode_bf16(const DecodeJob& job) noexcept {
    decode<DType::kBF16>(job);
}
void decode_f16(const DecodeJob& job) noexcept {
    decode<DType::kF16>(job);
}
void decode_f32(const DecodeJob& job) noexcept {
    decode<DType::kF32>(job);
}

}  // namespace lynx::codec::avx512
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
