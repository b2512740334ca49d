// What the AVX-512 kernels' files share. They are compiled for that instruction set, so whatever stands here is
// always inlined, a constant, or has one home in these files.
#pragma once

// g++ 12 takes what its own header leaves undefined on purpose for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "codec/kernels.hpp"

#define LYNX_ALWAYS_INLINE [[gnu::always_inline]] inline

namespace lynx::codec::avx512 {

std::size_t encode_bf16(const EncodeJob& job) noexcept;
std::size_t encode_f16(const EncodeJob& job) noexcept;
std::size_t encode_f32(const EncodeJob& job) noexcept;
void decode_bf16(const DecodeJob& job) noexcept;
void decode_f16(const DecodeJob& job) noexcept;
void decode_f32(const DecodeJob& job) noexcept;

/// Vectors are coded in batches of one for each 32-bit lane of a register.
inline constexpr std::size_t kBatch = 16;

/// From here on, in bytes of the tensor's side, results go past the caches: they would push out of them what is
/// still wanted, and each line would be read before it is written.
inline constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

/// How far ahead of what is being coded a source is fetched, at least.
inline constexpr std::size_t kPrefetchBytes = 8192;

template <DType kType>
constexpr std::size_t kSizeOf = kType == DType::kF32 ? 4 : 2;

/// The first `count` of a register's elements.
LYNX_ALWAYS_INLINE __mmask16 first_of_16(std::size_t count) noexcept {
    return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
}

LYNX_ALWAYS_INLINE bool is_line_aligned(const void* p) noexcept {
    return reinterpret_cast<std::uintptr_t>(p) % 64 == 0;
}

/// Past the caches if kStream; then `to` is aligned, and an sfence has to follow the last one.
template <bool kStream>
LYNX_ALWAYS_INLINE void store_line(std::byte* to, __m512i line) noexcept {
    if constexpr (kStream)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
    else
        _mm512_storeu_si512(to, line);
}

/// Byte indices of a permutation.
struct alignas(64) ByteTable {
    std::uint8_t index[64];
};

/// Index i is of(i).
template <class Of>
consteval ByteTable byte_table(Of of) {
    ByteTable table{};
    for (unsigned i = 0; i < 64; ++i) table.index[i] = static_cast<std::uint8_t>(of(i));
    return table;
}

LYNX_ALWAYS_INLINE __m512i load_table(const ByteTable& table) noexcept {
    return _mm512_load_si512(table.index);
}

}  // namespace lynx::codec::avx512
