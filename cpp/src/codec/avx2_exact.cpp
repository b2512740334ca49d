// The exact tier with AVX2: a word's 64 values are four registers of 16-bit lanes.
#include <immintrin.h>

#include "codec/exact_words.hpp"

namespace lynx::codec {
namespace {

constexpr std::size_t kQuarter = 16;  // values in a register

[[gnu::always_inline]] inline __m256i all(int value) noexcept {
    return _mm256_set1_epi16(static_cast<short>(value));
}

/// 16 values at `from`, or as many as `valid` has ones, and zeros behind.
[[gnu::always_inline]] inline __m256i load_values(const std::byte* from, std::uint64_t valid) noexcept {
    if ((valid & 0xffff) == 0xffff) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    __m256i values = _mm256_setzero_si256();
    std::memcpy(&values, from, 2 * static_cast<std::size_t>(_mm_popcnt_u64(valid & 0xffff)));
    return values;
}

[[gnu::always_inline]] inline void store_values(std::byte* to, __m256i values, std::uint64_t valid) noexcept {
    if ((valid & 0xffff) == 0xffff)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), values);
    else
        std::memcpy(to, &values, 2 * static_cast<std::size_t>(_mm_popcnt_u64(valid & 0xffff)));
}

[[gnu::always_inline]] inline __m256i ordinals(__m256i bits) noexcept {
    return _mm256_xor_si256(bits, _mm256_srli_epi16(_mm256_srai_epi16(bits, 15), 1));
}

[[gnu::always_inline]] inline __m256i fold_values(__m256i value, __m256i reference) noexcept {
    const __m256i difference = _mm256_sub_epi16(ordinals(value), ordinals(reference));
    return _mm256_xor_si256(_mm256_add_epi16(difference, difference), _mm256_srai_epi16(difference, 15));
}

[[gnu::always_inline]] inline __m256i unfold_values(__m256i folded, __m256i reference) noexcept {
    const __m256i sign = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_and_si256(folded, all(1)));
    const __m256i difference = _mm256_xor_si256(_mm256_srli_epi16(folded, 1), sign);
    return ordinals(_mm256_add_epi16(ordinals(reference), difference));
}

/// The Rice parameters; above kMaxParameter where a value has none.
template <DType kType>
[[gnu::always_inline]] inline __m256i parameters(int term, __m256i reference) noexcept {
    constexpr Float16Format kFormat = kFloat16Format<kType>;
    const __m256i exponent = _mm256_srli_epi16(_mm256_add_epi16(reference, reference), kFormat.mantissa_bits + 1);
    const __m256i k = _mm256_sub_epi16(all(term), _mm256_max_epi16(exponent, all(1)));
    return _mm256_max_epi16(k, _mm256_setzero_si256());
}

// Lanes shifted by `counts` of 0 to 11 each: AVX2 shifts by a count a lane for 32 bits only, so by multiplication with
// a power of two, taken from a table.
[[gnu::always_inline]] inline __m256i powers(__m256i counts) noexcept {
    const __m256i low = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, static_cast<char>(128), 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 0, 0, 0, 0));
    // The low byte of the result from the low byte of the count, and the high byte, which is 0 in `counts`, from a
    // copy.
    const __m256i pairs = _mm256_or_si256(counts, _mm256_slli_epi16(counts, 8));
    const __m256i byte = _mm256_set1_epi16(0x00ff);
    return _mm256_or_si256(_mm256_and_si256(byte, _mm256_shuffle_epi8(low, pairs)),
                           _mm256_andnot_si256(byte, _mm256_shuffle_epi8(high, pairs)));
}

[[gnu::always_inline]] inline __m256i shift_left(__m256i values, __m256i counts) noexcept {
    return _mm256_mullo_epi16(values, powers(counts));
}

/// values >> counts, at most kUnaryPlanes: how often 2^count goes into a value.
[[gnu::always_inline]] inline __m256i quotients(__m256i values, __m256i counts) noexcept {
    const __m256i right = _mm256_sub_epi16(all(16), counts);  // values * 2^right >> 16; 2^16 does not fit
    const __m256i power = _mm256_slli_epi16(powers(_mm256_sub_epi16(right, all(5))), 5);
    const __m256i whole = _mm256_cmpeq_epi16(counts, _mm256_setzero_si256());
    const __m256i shifted = _mm256_blendv_epi8(_mm256_mulhi_epu16(values, power), values, whole);
    return _mm256_min_epu16(shifted, all(kUnaryPlanes));
}

// ---- Bytes and planes --------------------------------------------------------------------------------------

/// 64 bytes, in the order of their values.
struct Bytes {
    __m256i low;
    __m256i high;
};

/// Of four registers of 16-bit lanes 0 to 255.
[[gnu::always_inline]] inline Bytes narrow(const __m256i (&values)[4]) noexcept {
    return {_mm256_permute4x64_epi64(_mm256_packus_epi16(values[0], values[1]), 0xd8),
            _mm256_permute4x64_epi64(_mm256_packus_epi16(values[2], values[3]), 0xd8)};
}

[[gnu::always_inline]] inline void widen(Bytes bytes, __m256i (&values)[4]) noexcept {
    values[0] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes.low));
    values[1] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes.low, 1));
    values[2] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes.high));
    values[3] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes.high, 1));
}

[[gnu::always_inline]] inline std::uint64_t top_bits(Bytes bytes) noexcept {
    const auto low = static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes.low));
    const auto high = static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes.high));
    return std::uint64_t{high} << 32 | low;
}

/// Bit i of plane j is bit j of byte i.
template <int kPlanes>
[[gnu::always_inline]] inline void store_planes(std::uint64_t* planes, Bytes bytes) noexcept {
    bytes = {_mm256_slli_epi16(bytes.low, 8 - kPlanes), _mm256_slli_epi16(bytes.high, 8 - kPlanes)};
#pragma GCC unroll 8
    for (int j = kPlanes - 1; j >= 0; --j) {
        planes[j] = top_bits(bytes);
        bytes = {_mm256_add_epi8(bytes.low, bytes.low), _mm256_add_epi8(bytes.high, bytes.high)};
    }
}

/// Whether value i's byte is more than j, in bit i of plane j.
template <int kPlanes>
[[gnu::always_inline]] inline void store_comparisons(std::uint64_t* planes, Bytes bytes) noexcept {
#pragma GCC unroll 16
    for (int j = 0; j < kPlanes; ++j) {
        const __m256i bound = _mm256_set1_epi8(static_cast<char>(j));
        planes[j] = top_bits({_mm256_cmpgt_epi8(bytes.low, bound), _mm256_cmpgt_epi8(bytes.high, bound)});
    }
}

// 0xff in byte i where `bits` has bit i.
[[gnu::always_inline]] inline __m256i spread(std::uint32_t bits) noexcept {
    const __m256i bytes_of =
        _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
    const __m256i repeated = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), bytes_of);
    return _mm256_cmpeq_epi8(_mm256_and_si256(repeated, bit_of), bit_of);
}

/// The reverse of store_planes, with the last of 8 planes first.
template <int kPlanes>
[[gnu::always_inline]] inline Bytes load_planes(const std::uint64_t* reversed) noexcept {
    Bytes bytes{_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 8
    for (int j = 0; j < kPlanes; ++j) {
        const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << j));
        const std::uint64_t plane = reversed[7 - j];
        bytes.low = _mm256_or_si256(bytes.low, _mm256_and_si256(spread(static_cast<std::uint32_t>(plane)), bit));
        bytes.high =
            _mm256_or_si256(bytes.high, _mm256_and_si256(spread(static_cast<std::uint32_t>(plane >> 32)), bit));
    }
    return bytes;
}

/// In how many of the unary planes a value has a one.
[[gnu::always_inline]] inline Bytes count_planes(const std::uint64_t* planes) noexcept {
    Bytes counts{_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 8
    for (unsigned j = 0; j < kUnaryPlanes; ++j) {
        counts.low = _mm256_sub_epi8(counts.low, spread(static_cast<std::uint32_t>(planes[j])));
        counts.high = _mm256_sub_epi8(counts.high, spread(static_cast<std::uint32_t>(planes[j] >> 32)));
    }
    return counts;
}

// ---- Words -------------------------------------------------------------------------------------------------

/// The Rice parameters of a word, 0 where a value has none, and the masks that follow from them.
template <DType kType>
[[gnu::always_inline]] inline void store_masks(const Place& at, __m256i (&k)[4], WordPlanes& planes) noexcept {
    __m256i coded[4];
#pragma GCC unroll 4
    for (std::size_t q = 0; q < 4; ++q) {
        const __m256i reference = load_values(at.reference + 32 * q, at.valid >> kQuarter * q);
        k[q] = parameters<kType>(at.term, reference);
        coded[q] = _mm256_cmpgt_epi16(all(kMaxParameter<kType> + 1), k[q]);
        k[q] = _mm256_and_si256(k[q], coded[q]);
        coded[q] = _mm256_and_si256(coded[q], all(0xff));
    }
    planes.coded = at.valid & top_bits(narrow(coded));
    store_comparisons<kMaxParameter<kType>>(planes.has, narrow(k));
    for (int j = 0; j < kMaxParameter<kType>; ++j) planes.has[j] &= planes.coded;
}

template <DType kType>
[[gnu::always_inline]] inline void encode_word(const std::byte* src, const Place& at, WordPlanes& planes) noexcept {
    __m256i k[4];
    store_masks<kType>(at, k, planes);
    alignas(32) std::uint16_t folded[kWordValues];
    __m256i low[4];
    __m256i high[4];
    __m256i quotient[4];
#pragma GCC unroll 4
    for (std::size_t q = 0; q < 4; ++q) {
        const std::uint64_t valid = at.valid >> kQuarter * q;
        const __m256i value = load_values(src + at.offset + 32 * q, valid);
        const __m256i u = fold_values(value, load_values(at.reference + 32 * q, valid));
        _mm256_store_si256(reinterpret_cast<__m256i*>(folded + kQuarter * q), u);
        low[q] = _mm256_and_si256(u, all(0xff));
        high[q] = _mm256_srli_epi16(u, 8);
        quotient[q] = quotients(u, k[q]);
    }
    store_planes<8>(planes.bits, narrow(low));
    if constexpr (kMaxParameter<kType> > 8) store_planes<kMaxParameter<kType> - 8>(planes.bits + 8, narrow(high));
    store_comparisons<kUnaryPlanes>(planes.more, narrow(quotient));
    for (unsigned j = 0; j < kUnaryPlanes; ++j) planes.more[j] &= planes.coded;
    planes.escaped = planes.more[kUnaryPlanes - 1] | (at.valid & ~planes.coded);
    unsigned count = 0;
    for (std::uint64_t left = planes.escaped; left != 0; left &= left - 1)
        planes.escapes[count++] = folded[_tzcnt_u64(left)];
    for (unsigned i = 0; i < kEscapesAtOnce; ++i) planes.escapes[count + i] = 0;
}

template <DType kType>
[[gnu::always_inline]] inline void decode_word(const WordPlanes& planes, const Place& at, std::byte* dst) noexcept {
    __m256i low[4];
    __m256i quotient[4];
    widen(load_planes<8>(planes.bits), low);
    widen(count_planes(planes.more), quotient);
    [[maybe_unused]] __m256i high[4];
    if constexpr (kMaxParameter<kType> > 8) widen(load_planes<kMaxParameter<kType> - 8>(planes.bits + 8), high);
    alignas(32) std::uint16_t folded[kWordValues];
#pragma GCC unroll 4
    for (std::size_t q = 0; q < 4; ++q) {
        const __m256i reference = load_values(at.reference + 32 * q, at.valid >> kQuarter * q);
        const __m256i k = parameters<kType>(at.term, reference);
        __m256i u = _mm256_or_si256(low[q], shift_left(quotient[q], k));
        if constexpr (kMaxParameter<kType> > 8) u = _mm256_or_si256(u, _mm256_slli_epi16(high[q], 8));
        _mm256_store_si256(reinterpret_cast<__m256i*>(folded + kQuarter * q), u);
    }
    unsigned count = 0;
    for (std::uint64_t left = planes.escaped; left != 0; left &= left - 1)
        folded[_tzcnt_u64(left)] = planes.escapes[count++];
#pragma GCC unroll 4
    for (std::size_t q = 0; q < 4; ++q) {
        const std::uint64_t valid = at.valid >> kQuarter * q;
        const __m256i u = _mm256_load_si256(reinterpret_cast<const __m256i*>(folded + kQuarter * q));
        store_values(dst + at.offset + 32 * q, unfold_values(u, load_values(at.reference + 32 * q, valid)), valid);
    }
}

template <DType kType>
[[gnu::always_inline]] inline void mask_word(const Place& at, WordPlanes& planes) noexcept {
    __m256i k[4];
    store_masks<kType>(at, k, planes);
}

}  // namespace

template <DType kType>
std::size_t encode_exact_avx2(const ExactEncodeJob& job) noexcept {
    return encode_words<kType, encode_word<kType>>(job);
}

template <DType kType>
bool decode_exact_avx2(const ExactDecodeJob& job) noexcept {
    return decode_words<kType, mask_word<kType>, decode_word<kType>>(job);
}

template std::size_t encode_exact_avx2<DType::kBF16>(const ExactEncodeJob&) noexcept;
template std::size_t encode_exact_avx2<DType::kF16>(const ExactEncodeJob&) noexcept;
template bool decode_exact_avx2<DType::kBF16>(const ExactDecodeJob&) noexcept;
template bool decode_exact_avx2<DType::kF16>(const ExactDecodeJob&) noexcept;

}  // namespace lynx::codec
