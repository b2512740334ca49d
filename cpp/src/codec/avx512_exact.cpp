// The exact tier with AVX-512: a word's 64 values are two registers of 16-bit lanes.
#include <immintrin.h>

#include "codec/convert.hpp"
#include "codec/exact_words.hpp"

namespace lynx::codec {
namespace {

/// 64 values of 16 bits.
struct Word {
    __m512i low;
    __m512i high;
};

[[gnu::always_inline]] inline Word load_word(const std::byte* from, __mmask64 valid) noexcept {
    return {_mm512_maskz_loadu_epi16(static_cast<__mmask32>(valid), from),
            _mm512_maskz_loadu_epi16(static_cast<__mmask32>(valid >> 32), from + 64)};
}

[[gnu::always_inline]] inline void store_word(std::byte* to, Word w, __mmask64 valid) noexcept {
    _mm512_mask_storeu_epi16(to, static_cast<__mmask32>(valid), w.low);
    _mm512_mask_storeu_epi16(to + 64, static_cast<__mmask32>(valid >> 32), w.high);
}

// The low byte of each value. Those of eight values stand in reverse order, as transpose() wants them.
[[gnu::always_inline]] inline __m512i low_bytes(Word w) noexcept {
    alignas(64) static constexpr std::uint8_t kEven[64] = {
        14, 12, 10, 8,  6,   4,   2,   0,   30,  28,  26, 24, 22,  20,  18,  16,  46,  44,  42,  40, 38, 36,
        34, 32, 62, 60, 58,  56,  54,  52,  50,  48,  78, 76, 74,  72,  70,  68,  66,  64,  94,  92, 90, 88,
        86, 84, 82, 80, 110, 108, 106, 104, 102, 100, 98, 96, 126, 124, 122, 120, 118, 116, 114, 112};
    return _mm512_permutex2var_epi8(w.low, _mm512_load_si512(kEven), w.high);
}

[[gnu::always_inline]] inline __m512i high_bytes(Word w) noexcept {
    return low_bytes({_mm512_srli_epi16(w.low, 8), _mm512_srli_epi16(w.high, 8)});
}

[[gnu::always_inline]] inline Word widen(__m512i bytes) noexcept {
    return {_mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes)),
            _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bytes, 1))};
}

// Byte 8 i + c and byte 8 c + i change places.
[[gnu::always_inline]] inline __m512i transpose_bytes(__m512i bytes) noexcept {
    alignas(64) static constexpr std::uint8_t kTransposed[64] = {
        0,  8,  16, 24, 32, 40, 48, 56, 1,  9,  17, 25, 33, 41, 49, 57, 2,  10, 18, 26, 34, 42,
        50, 58, 3,  11, 19, 27, 35, 43, 51, 59, 4,  12, 20, 28, 36, 44, 52, 60, 5,  13, 21, 29,
        37, 45, 53, 61, 6,  14, 22, 30, 38, 46, 54, 62, 7,  15, 23, 31, 39, 47, 55, 63};
    return _mm512_permutexvar_epi8(_mm512_load_si512(kTransposed), bytes);
}

// In each eight bytes: bit j of byte i is bit i of byte 7 - j.
[[gnu::always_inline]] inline __m512i transpose_bits(__m512i bytes) noexcept {
    return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64(static_cast<long long>(0x8040201008040201u)), bytes, 0);
}

/// Bytes in the order of low_bytes() to planes: bit i of plane j is bit j of value i's byte.
[[gnu::always_inline]] inline void store_planes(std::uint64_t* planes, __m512i bytes) noexcept {
    _mm512_store_si512(planes, transpose_bytes(transpose_bits(bytes)));
}

/// The reverse, with the last plane first; the bytes come in the order of their values.
[[gnu::always_inline]] inline __m512i load_planes(const std::uint64_t* reversed) noexcept {
    return transpose_bits(transpose_bytes(_mm512_load_si512(reversed)));
}

/// For each byte n < 16 the lowest n - `from` bits, 0 to 8 of them.
template <int kFrom>
[[gnu::always_inline]] inline __m512i lowest_bits(__m512i counts) noexcept {
    alignas(64) static constexpr std::uint8_t kBits[32] = {0,   0,   0,   0,   0,   0,   0,   0,   0,   1,   3,
                                                           7,   15,  31,  63,  127, 255, 255, 255, 255, 255, 255,
                                                           255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kBits + 8 - kFrom));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), counts);
}

[[gnu::always_inline]] inline __m512i ordinals(__m512i bits) noexcept {
    const __m512i sign = _mm512_srai_epi16(bits, 15);
    return _mm512_ternarylogic_epi32(bits, sign, _mm512_set1_epi16(0x7fff), 0x78);  // bits ^ (sign & 0x7fff)
}

[[gnu::always_inline]] inline __m512i fold_values(__m512i value, __m512i reference) noexcept {
    const __m512i difference = _mm512_sub_epi16(ordinals(value), ordinals(reference));
    return _mm512_xor_si512(_mm512_add_epi16(difference, difference), _mm512_srai_epi16(difference, 15));
}

[[gnu::always_inline]] inline __m512i unfold_values(__m512i folded, __m512i reference) noexcept {
    const __m512i sign = _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_and_si512(folded, _mm512_set1_epi16(1)));
    const __m512i difference = _mm512_xor_si512(_mm512_srli_epi16(folded, 1), sign);
    return ordinals(_mm512_add_epi16(ordinals(reference), difference));
}

/// The Rice parameters of a word, 0 where a value has none.
struct Parameters {
    Word k;
    __mmask32 coded_low;  ///< which values have one
    __mmask32 coded_high;
};

template <DType kType>
[[gnu::always_inline]] inline __m512i parameters(int term, __m512i reference, __mmask32 valid,
                                                 __mmask32& coded) noexcept {
    constexpr Float16Format kFormat = kFloat16Format<kType>;
    const __m512i exponent = _mm512_srli_epi16(_mm512_add_epi16(reference, reference), kFormat.mantissa_bits + 1);
    const __m512i k =
        _mm512_sub_epi16(_mm512_set1_epi16(static_cast<short>(term)), _mm512_max_epi16(exponent, _mm512_set1_epi16(1)));
    coded = _mm512_mask_cmple_epi16_mask(valid, k, _mm512_set1_epi16(kMaxParameter<kType>));
    return _mm512_maskz_max_epi16(coded, k, _mm512_setzero_si512());
}

template <DType kType>
[[gnu::always_inline]] inline Parameters parameters(int term, Word reference, __mmask64 valid) noexcept {
    Parameters p;
    p.k.low = parameters<kType>(term, reference.low, static_cast<__mmask32>(valid), p.coded_low);
    p.k.high = parameters<kType>(term, reference.high, static_cast<__mmask32>(valid >> 32), p.coded_high);
    return p;
}

template <DType kType>
[[gnu::always_inline]] inline void store_masks(Parameters p, WordPlanes& planes) noexcept {
    const __m512i k = low_bytes(p.k);
    store_planes(planes.has, lowest_bits<0>(k));
    if constexpr (kMaxParameter<kType> > 8) store_planes(planes.has + 8, lowest_bits<8>(k));
    planes.coded = std::uint64_t{p.coded_high} << 32 | p.coded_low;
}

// ---- Encoding ----------------------------------------------------------------------------------------------

template <DType kType>
[[gnu::always_inline]] inline void encode_word(const std::byte* src, const Place& at, WordPlanes& planes) noexcept {
    const Word reference = load_word(at.reference, at.valid);
    const Word value = load_word(src + at.offset, at.valid);
    const Parameters p = parameters<kType>(at.term, reference, at.valid);
    const Word folded{fold_values(value.low, reference.low), fold_values(value.high, reference.high)};
    store_masks<kType>(p, planes);
    store_planes(planes.bits, low_bytes(folded));
    if constexpr (kMaxParameter<kType> > 8) store_planes(planes.bits + 8, high_bytes(folded));
    const __m512i cap = _mm512_set1_epi16(kUnaryPlanes);
    const Word quotient{_mm512_maskz_min_epu16(p.coded_low, _mm512_srlv_epi16(folded.low, p.k.low), cap),
                        _mm512_maskz_min_epu16(p.coded_high, _mm512_srlv_epi16(folded.high, p.k.high), cap)};
    store_planes(planes.more, lowest_bits<0>(low_bytes(quotient)));
    const auto valid_low = static_cast<__mmask32>(at.valid);
    const auto valid_high = static_cast<__mmask32>(at.valid >> 32);
    const __mmask32 low = _mm512_mask_cmpeq_epi16_mask(valid_low, quotient.low, cap) | (valid_low & ~p.coded_low);
    const __mmask32 high = _mm512_mask_cmpeq_epi16_mask(valid_high, quotient.high, cap) | (valid_high & ~p.coded_high);
    planes.escaped = std::uint64_t{high} << 32 | low;
    _mm512_store_si512(planes.escapes, _mm512_maskz_compress_epi16(low, folded.low));
    _mm512_store_si512(planes.escapes + 32, _mm512_setzero_si512());
    _mm512_store_si512(planes.escapes + 64, _mm512_setzero_si512());
    _mm512_storeu_si512(planes.escapes + _mm_popcnt_u32(low), _mm512_maskz_compress_epi16(high, folded.high));
}

// ---- Decoding ----------------------------------------------------------------------------------------------

template <DType kType>
[[gnu::always_inline]] inline void decode_word(const WordPlanes& planes, const Place& at, std::byte* dst) noexcept {
    const Word reference = load_word(at.reference, at.valid);
    const Word k = parameters<kType>(at.term, reference, at.valid).k;
    const Word quotient = widen(_mm512_popcnt_epi8(load_planes(planes.more)));
    Word folded = widen(load_planes(planes.bits));
    folded.low = _mm512_or_si512(folded.low, _mm512_sllv_epi16(quotient.low, k.low));
    folded.high = _mm512_or_si512(folded.high, _mm512_sllv_epi16(quotient.high, k.high));
    if constexpr (kMaxParameter<kType> > 8) {
        const Word more = widen(load_planes(planes.bits + 8));
        folded.low = _mm512_or_si512(folded.low, _mm512_slli_epi16(more.low, 8));
        folded.high = _mm512_or_si512(folded.high, _mm512_slli_epi16(more.high, 8));
    }
    const auto low = static_cast<__mmask32>(planes.escaped);
    const auto high = static_cast<__mmask32>(planes.escaped >> 32);
    folded.low = _mm512_mask_expand_epi16(folded.low, low, _mm512_load_si512(planes.escapes));
    folded.high = _mm512_mask_expand_epi16(folded.high, high, _mm512_loadu_si512(planes.escapes + _mm_popcnt_u32(low)));
    store_word(dst + at.offset, {unfold_values(folded.low, reference.low), unfold_values(folded.high, reference.high)},
               at.valid);
}

template <DType kType>
[[gnu::always_inline]] inline void mask_word(const Place& at, WordPlanes& planes) noexcept {
    const Word reference = load_word(at.reference, at.valid);
    store_masks<kType>(parameters<kType>(at.term, reference, at.valid), planes);
}

}  // namespace

template <DType kType>
std::size_t encode_exact_avx512(const ExactEncodeJob& job) noexcept {
    return encode_words<kType, encode_word<kType>>(job);
}

template <DType kType>
bool decode_exact_avx512(const ExactDecodeJob& job) noexcept {
    return decode_words<kType, mask_word<kType>, decode_word<kType>>(job);
}

template std::size_t encode_exact_avx512<DType::kBF16>(const ExactEncodeJob&) noexcept;
template std::size_t encode_exact_avx512<DType::kF16>(const ExactEncodeJob&) noexcept;
template bool decode_exact_avx512<DType::kBF16>(const ExactDecodeJob&) noexcept;
template bool decode_exact_avx512<DType::kF16>(const ExactDecodeJob&) noexcept;

}  // namespace lynx::codec
