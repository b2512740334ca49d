// For what is compiled for an instruction set that other files do not assume: nothing of it may be emitted where
// the linker could take it for another file's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels.hpp"

#define LYNX_INLINE [[gnu::always_inline]] inline

namespace lynx::codec {
namespace {

/// countr_zero of a head_dim. (Functions of the standard library are emitted where a build does not optimize.)
LYNX_INLINE unsigned log2_of_block(std::uint32_t head_dim) noexcept {
    return static_cast<unsigned>(__builtin_ctz(head_dim));
}

template <DType kType>
LYNX_INLINE EncodeFn scalar_encode() noexcept {
    return kScalarKernels.encode[static_cast<std::size_t>(kType)];
}

template <DType kType>
LYNX_INLINE DecodeFn scalar_decode() noexcept {
    return kScalarKernels.decode[static_cast<std::size_t>(kType)];
}

}  // namespace
}  // namespace lynx::codec
