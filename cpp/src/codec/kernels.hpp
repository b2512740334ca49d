// One instruction set's codec functions. A new instruction set is one file that fills one Kernels, and one
// line in kernels_<architecture>.cpp. Every one of them gives the very bytes and values that docs/wire-format.md
// defines: the scalar kernels are the reference that the others are tested against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

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

/// Both run in the default floating-point environment, allocate nothing and throw nothing.
/// EncodeFn returns how many vectors were not finite.
using EncodeFn = std::size_t (*)(const EncodeJob&) noexcept;
using DecodeFn = void (*)(const DecodeJob&) noexcept;

inline constexpr std::size_t kDTypes = 3;

// Plain arrays: their use emits no function that a kernels' file would compile for its own instruction set.
struct Kernels {
    std::string_view name;
    bool (*supported)() noexcept;  ///< does this CPU run them?
    EncodeFn encode[kDTypes];      ///< by the source's DType
    DecodeFn decode[kDTypes];      ///< by the destination's DType
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx512Kernels;  ///< x86-64 builds only

/// All of this build, the fastest first; the last is kScalarKernels. Not every CPU runs all of them.
[[nodiscard]] std::span<const Kernels* const> built_kernels() noexcept;

}  // namespace lynx::codec
