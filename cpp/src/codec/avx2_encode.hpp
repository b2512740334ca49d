// Encoding with AVX2, for blocks of 16 or more: rotated in pairs, eight vectors share the arithmetic of scale and
// zero. Part of avx2.cpp.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/avx2_inline.hpp"
#include "codec/avx2_rotate.hpp"
#include "codec/kernels.hpp"
#include "codec/rotation.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx::codec {
namespace {

constexpr std::size_t kEncodeBatch = 8;
constexpr std::size_t kPairs = kEncodeBatch / 2;

struct Least {
    LYNX_INLINE __m256 operator()(__m256 a, __m256 b) const noexcept { return _mm256_min_ps(a, b); }
};
struct Most {
    LYNX_INLINE __m256 operator()(__m256 a, __m256 b) const noexcept { return _mm256_max_ps(a, b); }
};
struct Sum {
    LYNX_INLINE __m256 operator()(__m256 a, __m256 b) const noexcept { return _mm256_add_ps(a, b); }
};

/// Four pairs' lanes, each reduced to one value: pair p's vectors go to places p and p + 4.
template <class Use>
LYNX_INLINE __m256 reduce(__m256 a, __m256 b, __m256 c, __m256 d, Use use) noexcept {
    const __m256 ab = use(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = use(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    return use(_mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd))),
               _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd))));
}

/// Eight vectors' scales and zeros.
struct Quantizer {
    alignas(32) float zero[kEncodeBatch];
    alignas(32) float inverse_scale[kEncodeBatch];
    unsigned hard;  ///< bit v: vector v is not finite or needs clamps that are left out here
};

template <unsigned kLog2>
LYNX_INLINE void quantizer_of(const Span* s, std::byte* scales, std::byte* zeros, Quantizer& q) noexcept {
    constexpr float kFactor = forward_factor(kLog2);
    const __m256 factor = _mm256_set1_ps(kFactor);
    const __m256 low = _mm256_mul_ps(reduce(s[0].low, s[1].low, s[2].low, s[3].low, Least{}), factor);
    const __m256 high = _mm256_mul_ps(reduce(s[0].high, s[1].high, s[2].high, s[3].high, Most{}), factor);
    const __m256 poison = reduce(s[0].poison, s[1].poison, s[2].poison, s[3].poison, Sum{});
    // Minimum and maximum of an infinity and a NaN drop both, so that poison has to be finite, not only no NaN.
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), poison);
    const __m256 easy = _mm256_and_ps(_mm256_and_ps(_mm256_cmp_ps(low, _mm256_set1_ps(-65504.0f), _CMP_GE_OQ),
                                                    _mm256_cmp_ps(high, _mm256_set1_ps(65504.0f), _CMP_LE_OQ)),
                                      _mm256_cmp_ps(magnitude, _mm256_set1_ps(__builtin_inff()), _CMP_LT_OQ));
    q.hard = static_cast<unsigned>(_mm256_movemask_ps(easy)) ^ 0xffu;
    const __m256 range = _mm256_sub_ps(high, low);
    const __m128i scale = _mm256_cvtps_ph(_mm256_div_ps(range, _mm256_set1_ps(255.0f)), _MM_FROUND_TO_NEAREST_INT);
    __m128i zero = _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT);
    zero = _mm_andnot_si128(_mm_cmpeq_epi16(zero, _mm_set1_epi16(INT16_MIN)), zero);  // -0 is written as +0
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scales), scale);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(zeros), zero);
    const __m256 rounded = _mm256_cvtph_ps(scale);
    const __m256 coded = _mm256_cmp_ps(rounded, _mm256_setzero_ps(), _CMP_NEQ_OQ);
    _mm256_store_ps(q.inverse_scale, _mm256_and_ps(coded, _mm256_div_ps(_mm256_set1_ps(1.0f), rounded)));
    _mm256_store_ps(q.zero, _mm256_cvtph_ps(zero));
}

/// 32 codes' bits to eight planes, kBytes bytes each.
template <class Bits>
LYNX_INLINE void store_planes(__m256i codes, std::byte* planes, std::size_t plane_step) noexcept {
#pragma GCC unroll 8
    for (std::size_t p = 0; p < kPlaneCount; ++p) {
        const Bits bits = static_cast<Bits>(static_cast<unsigned>(_mm256_movemask_epi8(codes)));
        std::memcpy(planes + p * plane_step, &bits, sizeof bits);
        codes = _mm256_add_epi8(codes, codes);
    }
}

/// A unit's codes: the first vector's in `a`, the second's in `b`. Saturation is the format's clamp.
/// The factor's product is exact unless it is subnormal, and then too small to change the difference: so it may
/// be fused.
template <unsigned kLog2>
LYNX_INLINE void codes_of(const float* y, __m256 zero, __m256 inverse_scale, __m256i& a, __m256i& b) noexcept {
    constexpr float kFactor = forward_factor(kLog2);
    const __m256 factor = _mm256_set1_ps(kFactor);
    __m256i c[8];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i)
        c[i] =
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_fmsub_ps(_mm256_load_ps(y + 8 * i), factor, zero), inverse_scale));
    const __m256i low = _mm256_packus_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
    const __m256i high = _mm256_packus_epi16(_mm256_packs_epi32(c[4], c[5]), _mm256_packs_epi32(c[6], c[7]));
    a = _mm256_permute2x128_si256(low, high, 0x20);
    b = _mm256_permute2x128_si256(low, high, 0x31);
}

/// Eight vectors. Returns which of them the scalar kernel has to do again.
template <DType kType, unsigned kLog2>
LYNX_INLINE unsigned encode_eight(const std::byte* const* src, std::ptrdiff_t ahead, std::size_t head_dim,
                                  std::byte* scales, std::byte* zeros, std::byte* planes,
                                  std::size_t plane_step) noexcept {
    alignas(32) float y[kPairs][2 * kMaxHeadDim];
    const std::size_t row_bytes = head_dim / 8;
    Span spans[kPairs];
    // Loops of their own, so that what stands side by side does not wait for each other.
    for (std::size_t p = 0; p < kPairs; ++p) rotate_units<kType, kLog2>(src[p], src[p + kPairs], ahead, head_dim, y[p]);
    for (std::size_t p = 0; p < kPairs; ++p) spans[p] = rotate_blocks<kLog2>(head_dim, y[p]);
    Quantizer q;
    quantizer_of<kLog2>(spans, scales, zeros, q);
    for (std::size_t p = 0; p < kPairs; ++p) {
        const __m256 zero = _mm256_set_m128(_mm_broadcast_ss(q.zero + p + kPairs), _mm_broadcast_ss(q.zero + p));
        const __m256 inverse_scale =
            _mm256_set_m128(_mm_broadcast_ss(q.inverse_scale + p + kPairs), _mm_broadcast_ss(q.inverse_scale + p));
        std::byte* to = planes + p * row_bytes;
        for (std::size_t at = 0; at < row_bytes; at += kUnit / 8) {
            __m256i a;
            __m256i b;
            codes_of<kLog2>(y[p] + 16 * at, zero, inverse_scale, a, b);
            if (kLog2 == 4 && at + 2 == row_bytes) {
                store_planes<std::uint16_t>(a, to + at, plane_step);
                store_planes<std::uint16_t>(b, to + kPairs * row_bytes + at, plane_step);
            } else {
                store_planes<std::uint32_t>(a, to + at, plane_step);
                store_planes<std::uint32_t>(b, to + kPairs * row_bytes + at, plane_step);
            }
        }
    }
    return q.hard;
}

template <DType kType, unsigned kLog2>
std::size_t encode_blocks(const EncodeJob& job) noexcept {
    const std::size_t row_bytes = job.head_dim / 8;
    const std::ptrdiff_t ahead = 2 * static_cast<std::ptrdiff_t>(kEncodeBatch) * job.src_step;
    std::size_t nonfinite = 0;
    for (std::size_t done = 0; done < job.vectors; done += kEncodeBatch) {
        const std::size_t count = job.vectors - done < kEncodeBatch ? job.vectors - done : kEncodeBatch;
        const std::byte* src[kEncodeBatch];
        for (std::size_t v = 0; v < kEncodeBatch; ++v)
            src[v] = job.src + static_cast<std::ptrdiff_t>(done + (v < count ? v : count - 1)) * job.src_step;
        std::byte* scales = job.scales + 2 * done;
        std::byte* zeros = job.zeros + 2 * done;
        std::byte* planes = job.planes + done * row_bytes;
        unsigned hard = 0;
        if (count == kEncodeBatch) {
            hard = encode_eight<kType, kLog2>(src, ahead, job.head_dim, scales, zeros, planes, job.plane_step);
        } else {
            // The last one stands in for those that are not there; their results are dropped.
            std::byte own_scales[2 * kEncodeBatch];
            std::byte own_zeros[2 * kEncodeBatch];
            std::byte own_planes[kPlaneCount * kEncodeBatch * kMaxHeadDim / 8];
            hard = encode_eight<kType, kLog2>(src, ahead, job.head_dim, own_scales, own_zeros, own_planes,
                                              kEncodeBatch * row_bytes);
            hard &= (1u << count) - 1;
            std::memcpy(scales, own_scales, 2 * count);
            std::memcpy(zeros, own_zeros, 2 * count);
            for (std::size_t p = 0; p < kPlaneCount; ++p)
                std::memcpy(planes + p * job.plane_step, own_planes + p * kEncodeBatch * row_bytes, count * row_bytes);
        }
        for (; hard != 0; hard &= hard - 1) {
            const auto v = static_cast<std::size_t>(__builtin_ctz(hard));
            EncodeJob one = job;
            one.src = src[v];
            one.vectors = 1;
            one.scales = scales + 2 * v;
            one.zeros = zeros + 2 * v;
            one.planes = planes + v * row_bytes;
            nonfinite += scalar_encode<kType>()(one);
        }
    }
    return nonfinite;
}

template <DType kType>
std::size_t encode(const EncodeJob& job) noexcept {
    switch (log2_of_block(job.head_dim)) {
        case 4: return encode_blocks<kType, 4>(job);
        case 5: return encode_blocks<kType, 5>(job);
        case 6: return encode_blocks<kType, 6>(job);
        case 7: return encode_blocks<kType, 7>(job);
        case 8: return encode_blocks<kType, 8>(job);
        case 9: return encode_blocks<kType, 9>(job);
        case 10: return encode_blocks<kType, 10>(job);
        default: return scalar_encode<kType>()(job);
    }
}

}  // namespace
}  // namespace lynx::codec
