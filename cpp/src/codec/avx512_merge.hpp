// Planes to codes with AVX-512: the planes' bytes are brought together, eight codes' in a 64-bit word, which is
// transposed as a bit matrix of 8 x 8.
#pragma once

#include "codec/avx512.hpp"

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): places within a batch, all below 2^16
namespace lynx::codec::avx512 {

// In a lane: which word, the plane's bits 1 and 0 not yet there, so that three rounds of unpacking leave a word for
// each byte of the planes and the words in order.
template <unsigned kUpper>
LYNX_ALWAYS_INLINE __m512i merge_table() noexcept {
    static constexpr ByteTable kTable = byte_table([](unsigned i) {
        // Byte q5 ... q0 of a plane: lanes q2 q1, in a lane q4 q3 q0 and which register; q5 the half.
        const unsigned q = kUpper << 5 | (i >> 3 & 1u) << 4 | (i >> 2 & 1u) << 3 | (i >> 4 & 3u) << 1 | (i >> 1 & 1u);
        return (i & 1u) << 6 | q;
    });
    return load_table(kTable);
}

struct PlaneReader {
    const std::byte* planes;
    std::size_t step;

    LYNX_ALWAYS_INLINE __m512i load(unsigned p, std::size_t offset) const noexcept {
        return _mm512_loadu_si512(planes + p * step + offset);
    }
    LYNX_ALWAYS_INLINE __m512i load(unsigned p, std::size_t offset, __mmask64 bytes) const noexcept {
        return _mm512_maskz_loadu_epi8(bytes, planes + p * step + offset);
    }
};

// 64 bytes of each of kPlanes planes to 512 codes in order, the missing planes' bits 0.
template <unsigned kPlanes, class... Mask>
LYNX_ALWAYS_INLINE void merge(const PlaneReader& reader, std::size_t offset, std::uint8_t* codes,
                              Mask... mask) noexcept {
    const __m512i lower = merge_table<0>();
    const __m512i upper = merge_table<1>();
    const __m512i none = _mm512_setzero_si512();
    __m512i a[8];
    __m512i b[8];
#pragma GCC unroll 8
    for (unsigned p = 0; p < 8; ++p) a[p] = p < kPlanes ? reader.load(p, offset, mask...) : none;
    // a: by plane; b: by the plane's upper two bits and q5; then a: p2, q4, q5; then b: q3, q4, q5.
#pragma GCC unroll 4
    for (unsigned p = 0; p < 4; ++p) {
        b[2 * p] = 2 * p < kPlanes ? _mm512_permutex2var_epi8(a[2 * p], lower, a[2 * p + 1]) : none;
        b[2 * p + 1] = 2 * p < kPlanes ? _mm512_permutex2var_epi8(a[2 * p], upper, a[2 * p + 1]) : none;
    }
#pragma GCC unroll 8
    for (unsigned r = 0; r < 8; ++r) {
        const unsigned low = r & 5u;
        if ((r & 4u) != 0 && kPlanes <= 4)
            a[r] = none;
        else
            a[r] =
                (r & 2u) == 0 ? _mm512_unpacklo_epi16(b[low], b[low | 2u]) : _mm512_unpackhi_epi16(b[low], b[low | 2u]);
    }
    // Row p of a word's bit matrix, the last row bit 0 of each code.
    const __m512i identity = _mm512_set1_epi64(static_cast<long long>(0x8040201008040201));
#pragma GCC unroll 8
    for (unsigned r = 0; r < 8; ++r) {
        const unsigned low = r & 3u;
        const __m512i words =
            (r & 4u) == 0 ? _mm512_unpacklo_epi32(a[low], a[low | 4u]) : _mm512_unpackhi_epi32(a[low], a[low | 4u]);
        // r is q3, q4, q5 from the top.
        const unsigned unit = (r & 1u) << 2 | (r & 2u) | r >> 2;
        _mm512_store_si512(codes + 64 * unit, _mm512_gf2p8affine_epi64_epi8(identity, words, 0));
    }
}

}  // namespace lynx::codec::avx512
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
