// Codes to planes with AVX-512: a bit matrix of 8 x 8 is transposed for each eight codes of a vector, and the bytes
// that come out are brought together by plane.
#pragma once

#include <cstring>

#include "codec/avx512.hpp"
#include "lynx/plane_layout.hpp"

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): places within a batch, all below 2^16
namespace lynx::codec::avx512 {

/// What a batch of sixteen vectors leaves on its way.
template <std::size_t kMost>
struct alignas(64) EncodeScratch {
    // Coordinates in order; a register's lanes are the vectors.
    __m512 rotated[kMost <= 128 ? 2 : 1][kMost];
    // codes[h][j]: the codes 8 j ... 8 j + 7 of the vectors 8 h ... 8 h + 7, each in a 64-bit word, the last first.
    __m512i codes[2][kMost / 8];
    // rows[g][p]: of eight vectors the bytes 8 g ... 8 g + 7 of their row in plane p.
    __m512i rows[kMost / 64][kPlaneCount];
    // Planes of what is not written in place.
    std::byte planes[kPlaneCount][kBatch * kMost / 8 + 8];
};

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

template <unsigned kHeadDim>
constexpr Order order_of() {
    return kHeadDim == 128 ? Order::k128 : kHeadDim == 256 ? Order::k256 : Order::kNatural;
}

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

}  // namespace lynx::codec::avx512
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
