// Decoding with AVX2, for blocks of 16 or more: 256 consecutive coordinates at a time, whatever vectors they are
// of. Part of avx2.cpp.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/avx2_inline.hpp"
#include "codec/avx2_words.hpp"
#include "codec/convert.hpp"
#include "codec/kernels.hpp"
#include "codec/rotation.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx::codec {
namespace {

// Sixteen coordinates are written at a time.
constexpr std::size_t kGroup = 16;
constexpr std::size_t kGroups = kChunk / kGroup;

// From this size on what is written would only push other data out of the caches.
constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

template <DType kType>
constexpr std::size_t kSize = kType == DType::kF32 ? 4 : 2;

/// To bf16 in the upper 16 bits, to nearest, ties to even. x * 65535 = x * 65536 - x keeps of x what bf16 has
/// room for, and the subtraction is exact. A -0 becomes +0 unless kSigned; only a scale that is not above 0 makes
/// one. No value here comes near fp32's subnormals or its largest.
template <bool kSigned>
LYNX_INLINE __m256i round_to_bf16(__m256 x) noexcept {
    const __m256 near = _mm256_mul_ps(x, _mm256_set1_ps(65535.0f));
    __m256 rounded = _mm256_fmsub_ps(x, _mm256_set1_ps(65536.0f), near);
    if (kSigned) rounded = _mm256_or_ps(rounded, _mm256_and_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_castps_si256(rounded);
}

template <bool kStream>
LYNX_INLINE void store(std::byte* dst, __m256i value) noexcept {
    if constexpr (kStream)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(dst), value);
    else
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), value);
}

/// 16 coordinates, the even and the odd ones.
template <DType kType, bool kStream, bool kSigned>
LYNX_INLINE void store_group(__m256 even, __m256 odd, std::byte* dst) noexcept {
    if constexpr (kType == DType::kBF16) {
        const __m256i low = _mm256_srli_epi32(round_to_bf16<kSigned>(even), 16);
        store<kStream>(dst, _mm256_blend_epi16(low, round_to_bf16<kSigned>(odd), 0xaa));
    } else if constexpr (kType == DType::kF16) {
        const __m128i low = _mm256_cvtps_ph(even, _MM_FROUND_TO_NEAREST_INT);
        const __m128i high = _mm256_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT);
        store<kStream>(dst, _mm256_set_m128i(_mm_unpackhi_epi16(low, high), _mm_unpacklo_epi16(low, high)));
    } else {
        const __m256i low = _mm256_castps_si256(_mm256_unpacklo_ps(even, odd));
        const __m256i high = _mm256_castps_si256(_mm256_unpackhi_ps(even, odd));
        store<kStream>(dst, _mm256_permute2x128_si256(low, high, 0x20));
        store<kStream>(dst + 32, _mm256_permute2x128_si256(low, high, 0x31));
    }
}

/// Where consecutive coordinates go, and what makes values of them.
struct Place {
    std::byte* dst;
    float factor;
    float bias;
};

/// The bias for the first of eight coordinates; the others keep even the sign of a zero.
LYNX_INLINE __m256 add_bias(__m256 x, float bias) noexcept {
    return _mm256_add_ps(x, _mm256_blend_ps(_mm256_set1_ps(-0.0f), _mm256_castps128_ps256(_mm_set_ss(bias)), 1));
}

/// The stage of bit 4 and the conversions: words as transform_chunk leaves them. A place takes 1 << kPlaceLog2
/// coordinates.
template <DType kType, unsigned kLog2, unsigned kPlaceLog2, bool kStream, bool kSigned>
void emit_chunk(const __m256i* words, const Place* places) noexcept {
    constexpr std::size_t kBlock = std::size_t{1} << kLog2;
    constexpr std::size_t kPlace = std::size_t{1} << kPlaceLog2;
    const __m256i first = _mm256_set1_epi32(1 | (kLog2 > 4 ? 1 << 16 : 0));
    const __m256i second = _mm256_set1_epi32(kLog2 > 4 ? 1 - (1 << 16) : 1 << 16);
#pragma GCC unroll 2
    for (std::size_t i = 0; i < kGroups / 2; ++i) {
#pragma GCC unroll 2
        for (std::size_t bit4 = 0; bit4 < 2; ++bit4) {
            const std::size_t at = (2 * i + bit4) * kGroup;
            const Place& place = places[at / kPlace];
            const __m256 factor = _mm256_set1_ps(place.factor);
            const __m256i weights = bit4 == 0 ? first : second;
            __m256 even = _mm256_cvtepi32_ps(_mm256_madd_epi16(words[i], weights));
            __m256 odd = _mm256_cvtepi32_ps(_mm256_madd_epi16(words[8 + i], weights));
            even = _mm256_mul_ps(even, factor);
            odd = _mm256_mul_ps(odd, factor);
            if (at % kBlock == 0) even = add_bias(even, place.bias);
            store_group<kType, kStream, kSigned>(even, odd, place.dst + at % kPlace * kSize<kType>);
        }
    }
}

/// Four vectors' factors and biases, as reconstruction() has them.
struct FourReconstructions {
    alignas(16) float factor[4];
    alignas(16) float bias[4];
    bool positive;  ///< every factor is above 0
};

template <unsigned kLog2>
LYNX_INLINE void reconstruct(__m128i scales, __m128i zeros, unsigned missing, FourReconstructions& r) noexcept {
    constexpr float kInverse = inverse_factor(kLog2);
    constexpr float kGathered = power_of_two(static_cast<int>(kLog2)) * kInverse;
    const float step = static_cast<float>(1u << missing);
    const __m128 scale = _mm_cvtph_ps(scales);
    const __m128 middle = _mm_mul_ps(scale, _mm_set1_ps((step - 1.0f) * 0.5f));
    const __m128 centre = _mm_add_ps(_mm_cvtph_ps(zeros), middle);
    const __m128 factor = _mm_mul_ps(scale, _mm_set1_ps(step * kInverse));
    _mm_store_ps(r.factor, factor);
    _mm_store_ps(r.bias, _mm_mul_ps(centre, _mm_set1_ps(kGathered)));
    r.positive = _mm_movemask_ps(_mm_cmpgt_ps(factor, _mm_setzero_ps())) == 15;
}

/// Up to four vectors' fp16; the others are read as the first one.
LYNX_INLINE __m128i load_halves(const std::byte* from, std::size_t count) noexcept {
    if (count >= 4) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    std::uint16_t own[4];
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(own + i, from + (i < count ? 2 * i : 0), 2);
    return _mm_set_epi64x(0, static_cast<long long>(own[0] | std::uint64_t{own[1]} << 16 | std::uint64_t{own[2]} << 32 |
                                                    std::uint64_t{own[3]} << 48));
}

/// The bytes of `count` coordinates, fewer than a chunk has, and zeros behind them.
LYNX_INLINE void copy_rows(const DecodeJob& job, std::size_t first, std::size_t count, std::byte* rows) noexcept {
    std::memset(rows, 0, kPlaneCount * kChunkRow);
    for (unsigned p = 0; p < job.plane_count; ++p)
        std::memcpy(rows + p * kChunkRow, job.planes + p * job.plane_step + first / 8, count / 8);
}

template <DType kType>
[[nodiscard]] LYNX_INLINE bool to_stream(const DecodeJob& job) noexcept {
    const std::size_t vector_bytes = job.head_dim * kSize<kType>;
    return job.dst_step == static_cast<std::ptrdiff_t>(vector_bytes) && job.vectors * vector_bytes >= kStreamBytes &&
           reinterpret_cast<std::uintptr_t>(job.dst) % 32 == 0;
}

using EmitFn = void (*)(const __m256i*, const Place*) noexcept;

template <DType kType, unsigned kLog2, unsigned kPlaceLog2>
[[nodiscard]] LYNX_INLINE EmitFn emit_for(bool stream, bool is_signed) noexcept {
    if (kType == DType::kBF16 && is_signed)
        return stream ? emit_chunk<kType, kLog2, kPlaceLog2, true, kType == DType::kBF16>
                      : emit_chunk<kType, kLog2, kPlaceLog2, false, kType == DType::kBF16>;
    return stream ? emit_chunk<kType, kLog2, kPlaceLog2, true, false>
                  : emit_chunk<kType, kLog2, kPlaceLog2, false, false>;
}

/// head_dim is the block, 64, 128 or 256: a chunk holds whole vectors.
template <DType kType, unsigned kLog2>
void decode_whole(const DecodeJob& job) noexcept {
    constexpr std::size_t kVectors = kChunk >> kLog2;
    const unsigned missing = kPlaneCount - job.plane_count;
    const bool stream = to_stream<kType>(job);
    const TransformFn transform = kTransform<kLog2>[job.plane_count - 1];
    alignas(32) std::byte dropped[kChunk * sizeof(float)];
    alignas(32) std::byte rows[kPlaneCount * kChunkRow];
    alignas(32) __m256i words[kGroups];
    for (std::size_t done = 0; done < job.vectors; done += kVectors) {
        const std::size_t left = job.vectors - done;
        FourReconstructions r;
        reconstruct<kLog2>(load_halves(job.scales + 2 * done, left), load_halves(job.zeros + 2 * done, left), missing,
                           r);
        Place places[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) {
            std::byte* dst = job.dst + static_cast<std::ptrdiff_t>(done + v) * job.dst_step;
            places[v] = {v < left ? dst : dropped, r.factor[v], r.bias[v]};
        }
        if (left >= kVectors) {
            transform(job.planes + (done << kLog2) / 8, job.plane_step, words);
        } else {
            copy_rows(job, done << kLog2, left << kLog2, rows);
            transform(rows, kChunkRow, words);
        }
        emit_for<kType, kLog2, kLog2>(stream && left >= kVectors, !r.positive)(words, places);
    }
    if (stream) _mm_sfence();
}

/// Any other head_dim whose block is 16 to 256: each group of a chunk has its own place.
template <DType kType, unsigned kLog2>
void decode_parts(const DecodeJob& job) noexcept {
    const unsigned missing = kPlaneCount - job.plane_count;
    const TransformFn transform = kTransform<kLog2>[job.plane_count - 1];
    const std::size_t coordinates = job.vectors * job.head_dim;
    alignas(32) std::byte dropped[kGroup * sizeof(float)];
    alignas(32) std::byte rows[kPlaneCount * kChunkRow];
    alignas(32) __m256i words[kGroups];
    std::size_t vector = 0;
    std::size_t inside = job.head_dim;  // the next group's first coordinate in its vector
    Place place{};
    bool positive = true;
    for (std::size_t first = 0; first < coordinates; first += kChunk) {
        const std::size_t count = coordinates - first < kChunk ? coordinates - first : kChunk;
        bool all_positive = positive;
        Place places[kGroups];
        for (std::size_t g = 0; g < kGroups; ++g) {
            if (g * kGroup >= count) {
                places[g] = {dropped, 0.0f, 0.0f};
                continue;
            }
            if (inside == job.head_dim) {
                FourReconstructions r;
                reconstruct<kLog2>(load_halves(job.scales + 2 * vector, 1), load_halves(job.zeros + 2 * vector, 1),
                                   missing, r);
                place = {job.dst + static_cast<std::ptrdiff_t>(vector) * job.dst_step, r.factor[0], r.bias[0]};
                positive = r.positive;
                all_positive = all_positive && positive;
                inside = 0;
                ++vector;
            }
            places[g] = place;
            place.dst += kGroup * kSize<kType>;
            inside += kGroup;
        }
        if (count == kChunk) {
            transform(job.planes + first / 8, job.plane_step, words);
        } else {
            copy_rows(job, first, count, rows);
            transform(rows, kChunkRow, words);
        }
        emit_for<kType, kLog2, 4>(false, !all_positive)(words, places);
    }
}

/// head_dim is 512 or 1024: chunks of one block, whose last stages are on floats: integers below 2^24, exact.
template <DType kType, unsigned kLog2>
void decode_large(const DecodeJob& job) noexcept {
    constexpr std::size_t kChunks = (std::size_t{1} << kLog2) / kChunk;
    const TransformFn transform = kTransform<8>[job.plane_count - 1];
    alignas(32) __m256i words[kChunks][kGroups];
    for (std::size_t v = 0; v < job.vectors; ++v) {
        for (std::size_t c = 0; c < kChunks; ++c)
            transform(job.planes + (v * kChunks + c) * kChunkRow, job.plane_step, words[c]);
        FourReconstructions r;
        reconstruct<kLog2>(load_halves(job.scales + 2 * v, 1), load_halves(job.zeros + 2 * v, 1),
                           kPlaneCount - job.plane_count, r);
        const __m256 factor = _mm256_set1_ps(r.factor[0]);
        std::byte* dst = job.dst + static_cast<std::ptrdiff_t>(v) * job.dst_step;
        for (std::size_t group = 0; group < kGroups; ++group) {
            const __m256i weights = _mm256_set1_epi32(group % 2 == 0 ? 0x00010001 : 1 - (1 << 16));
            __m256 x[2][kChunks];
            for (std::size_t c = 0; c < kChunks; ++c)
                for (std::size_t bit0 = 0; bit0 < 2; ++bit0)
                    x[bit0][c] = _mm256_cvtepi32_ps(_mm256_madd_epi16(words[c][8 * bit0 + group / 2], weights));
            for (std::size_t h = 1; h < kChunks; h *= 2)
                for (std::size_t c = 0; c < kChunks; ++c)
                    for (std::size_t bit0 = 0; (c & h) == 0 && bit0 < 2; ++bit0) {
                        const __m256 a = x[bit0][c];
                        x[bit0][c] = _mm256_add_ps(a, x[bit0][c + h]);
                        x[bit0][c + h] = _mm256_sub_ps(a, x[bit0][c + h]);
                    }
            for (std::size_t c = 0; c < kChunks; ++c) {
                __m256 even = _mm256_mul_ps(x[0][c], factor);
                if (group == 0 && c == 0) even = add_bias(even, r.bias[0]);
                store_group<kType, false, true>(even, _mm256_mul_ps(x[1][c], factor),
                                                dst + (c * kChunk + group * kGroup) * kSize<kType>);
            }
        }
    }
}

template <DType kType>
void decode(const DecodeJob& job) noexcept {
    switch (job.head_dim) {
        case 64: return decode_whole<kType, 6>(job);
        case 128: return decode_whole<kType, 7>(job);
        case 256: return decode_whole<kType, 8>(job);
        default: break;
    }
    switch (log2_of_block(job.head_dim)) {
        case 4: return decode_parts<kType, 4>(job);
        case 5: return decode_parts<kType, 5>(job);
        case 6: return decode_parts<kType, 6>(job);
        case 7: return decode_parts<kType, 7>(job);
        case 8: return decode_parts<kType, 8>(job);
        case 9: return decode_large<kType, 9>(job);
        case 10: return decode_large<kType, 10>(job);
        default: return scalar_decode<kType>()(job);
    }
}

}  // namespace
}  // namespace lynx::codec
