// Encoding with AVX-512: rotate a batch of sixteen vectors, find their scales, quantize, split to planes. The steps
// hand over through scratch memory in the first-level cache.
#include <cstring>

#include "codec/avx512.hpp"
#include "codec/avx512_rotate.hpp"
#include "codec/avx512_split.hpp"
#include "codec/rotation.hpp"

namespace lynx::codec::avx512 {
namespace {

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

// ---- Whole jobs ------------------------------------------------------------------------------------------

// What to do with the planes: straight to their place, past the caches, or by way of the scratch memory.
enum class Target { kPlace, kStream, kScratch };

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
    constexpr float kFactor = forward_factor(log2_block(kBlock));
    const std::size_t left = job.vectors - first;
    const Batch batch = batch_of<kType>(job, head_dim, first);
    return {first, left < kBatch ? left : kBatch, values,
            scale_zero_of(rotate<kType, kBlock>(batch, head_dim, values), kFactor)};
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
    const std::size_t head_dim = kHeadDim != 0 ? kHeadDim : job.head_dim;
    EncodeScratch<kHeadDim == 0 ? kMaxHeadDim : kHeadDim> scratch;
    const bool stream = job.vectors * job.head_dim * kSizeOf<kType> >= kStreamBytes && is_line_aligned(job.planes) &&
                        job.plane_step % 64 == 0;
    const Target target = kHeadDim == 0 ? Target::kScratch : stream ? Target::kStream : Target::kPlace;
    std::size_t nonfinite = 0;
    // A batch is rotated before the one before it is quantized, which would else wait for its divisions; but two
    // batches of long vectors do not fit the first-level cache.
    constexpr std::size_t kBehind = kHeadDim == 64 || kHeadDim == 128 ? kBatch : 0;
    Rotated batch{};
    for (std::size_t first = 0; first < job.vectors + kBehind; first += kBatch) {
        const Rotated before = batch;
        if (kBehind == 0 || first < job.vectors)
            batch = rotate_batch<kType, kBlock>(job, head_dim, first,
                                                scratch.rotated[kBehind == 0 ? 0 : first / kBatch % 2]);
        if (first < kBehind) continue;
        const Rotated& ready = kBehind == 0 ? batch : before;
        const unsigned again = quantize_batch<kHeadDim>(job, head_dim, ready, target, scratch);
        if (again != 0) [[unlikely]]
            nonfinite += encode_again<kType>(job, ready.first, again);
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
    switch (job.head_dim & -job.head_dim) {
        case 16: return encode_blocks<kType, 16, 0>(job);
        case 32: return encode_blocks<kType, 32, 0>(job);
        case 64: return encode_blocks<kType, 64, 0>(job);
        case 128: return encode_blocks<kType, 128, 0>(job);
        case 256: return encode_blocks<kType, 256, 0>(job);
        case 512: return encode_blocks<kType, 512, 0>(job);
        case 1024: return encode_blocks<kType, 1024, 0>(job);
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
