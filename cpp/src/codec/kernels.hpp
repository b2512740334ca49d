// One instruction set's codec functions. A new instruction set is one file that fills one Kernels, and one
// line in kernels_<architecture>.cpp. Every one of them gives the very bytes and values that docs/wire-format.md
// defines: the scalar kernels are the reference that the others are tested against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/exact_tier.hpp"
#include "lynx/dtype.hpp"

namespace lynx::codec {

/// Consecutive head vectors to code. No pointer needs to be aligned.
struct EncodeJob {
    const std::byte* src = nullptr;  ///< the first vector; the elements of a vector are adjacent
    std::ptrdiff_t src_step = 0;     ///< bytes from one vector to the next, of any sign
    std::size_t vectors = 0;
    std::uint32_t head_dim = 0;
    std::byte* scales = nullptr;  ///< where the first vector's scale, zero and byte of plane 0 go
    std::byte* zeros = nullptr;
    std::byte* planes = nullptr;
    std::size_t plane_step = 0;  ///< bytes from one plane to the next
};

/// Consecutive head vectors to decode from their first `plane_count` planes.
struct DecodeJob {
    const std::byte* scales = nullptr;
    const std::byte* zeros = nullptr;
    const std::byte* planes = nullptr;
    std::size_t plane_step = 0;
    unsigned plane_count = 0;
    std::size_t vectors = 0;
    std::uint32_t head_dim = 0;
    std::byte* dst = nullptr;
    std::ptrdiff_t dst_step = 0;
};

/// One group of the exact tier: the values of consecutive vectors against their reconstruction from 8 planes.
struct ExactEncodeJob {
    const std::byte* src = nullptr;  ///< the first vector; the elements of a vector are adjacent
    std::ptrdiff_t src_step = 0;
    const std::byte* reference = nullptr;  ///< the reconstruction, of the source's type, vector behind vector
    const std::byte* scales = nullptr;
    std::size_t vectors = 0;
    std::uint32_t head_dim = 0;
    std::ptrdiff_t ahead = 0;                 ///< bytes from a value of `src` to where the next group has its like
    const std::byte* planes_ahead = nullptr;  ///< where the next group begins in plane 0; only prefetched, as that is
    std::size_t plane_step = 0;
    std::byte* dst = nullptr;  ///< has room for `limit` bytes and kExactSlack more
    std::size_t limit = 0;     ///< a multiple of kGroupAlignment
};

struct ExactDecodeJob {
    const std::byte* src = nullptr;  ///< kExactSlack bytes behind the group's may be read and mean nothing
    std::size_t src_bytes = 0;       ///< a multiple of kGroupAlignment
    const std::byte* reference = nullptr;
    const std::byte* scales = nullptr;
    std::size_t vectors = 0;
    std::uint32_t head_dim = 0;
    std::ptrdiff_t ahead = 0;  ///< as above, in `dst`
    const std::byte* planes_ahead = nullptr;
    std::size_t plane_step = 0;
    std::byte* dst = nullptr;
    std::ptrdiff_t dst_step = 0;
};

/// What an exact kernel may touch behind the end: it looks where it is after each word.
inline constexpr std::size_t kExactSlack = kMaxWordBytes + 64;

/// They run in the default floating-point environment, allocate nothing and throw nothing.
/// EncodeFn returns how many vectors were not finite.
using EncodeFn = std::size_t (*)(const EncodeJob&) noexcept;
using DecodeFn = void (*)(const DecodeJob&) noexcept;
/// Returns the group's bytes, a multiple of kGroupAlignment; `limit` if it does not take less.
using ExactEncodeFn = std::size_t (*)(const ExactEncodeJob&) noexcept;
/// Returns whether the group's bits are what an encoder can have written: they end where its bytes do, and what
/// fills the last bytes is 0. If not, `dst` holds nothing of use.
using ExactDecodeFn = bool (*)(const ExactDecodeJob&) noexcept;

inline constexpr std::size_t kDTypes = 3;
inline constexpr std::size_t kExactDTypes = 2;

// Plain arrays: their use emits no function that a kernels' file would compile for its own instruction set.
struct Kernels {
    std::string_view name;
    bool (*supported)() noexcept;              ///< does this CPU run them?
    EncodeFn encode[kDTypes];                  ///< by the source's DType
    DecodeFn decode[kDTypes];                  ///< by the destination's DType
    ExactEncodeFn encode_exact[kExactDTypes];  ///< by the source's DType
    ExactDecodeFn decode_exact[kExactDTypes];
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;    ///< x86-64 builds only
extern const Kernels kAvx512Kernels;  ///< x86-64 builds only

/// Each one's exact kernels, in a file of their own; for bf16 and fp16.
template <DType kType>
std::size_t encode_exact_scalar(const ExactEncodeJob& job) noexcept;
template <DType kType>
bool decode_exact_scalar(const ExactDecodeJob& job) noexcept;
template <DType kType>
std::size_t encode_exact_avx2(const ExactEncodeJob& job) noexcept;
template <DType kType>
bool decode_exact_avx2(const ExactDecodeJob& job) noexcept;
template <DType kType>
std::size_t encode_exact_avx512(const ExactEncodeJob& job) noexcept;
template <DType kType>
bool decode_exact_avx512(const ExactDecodeJob& job) noexcept;

/// All of this build, the fastest first; the last is kScalarKernels. Not every CPU runs all of them.
[[nodiscard]] std::span<const Kernels* const> built_kernels() noexcept;

}  // namespace lynx::codec
