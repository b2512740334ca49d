// The exact tier of a whole tensor: groups of vectors, their index, and their bits one group behind the other.
#pragma once

#include <cstddef>
#include <optional>

#include "codec/kernels.hpp"
#include "lynx/buffer.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::codec {

/// Writes index and payload behind the planes that `coded` holds. Returns the payload's bytes. Shapes, sizes and
/// dtypes are checked by the caller.
std::size_t encode_exact(const Kernels& kernels, const TensorView& src, const PlaneLayout& layout,
                         ByteSpan coded) noexcept;

/// What is wrong with the bits of an exact tier, and in which group.
struct ExactFault {
    std::size_t group;
    const char* what;
};

/// Restores the source's bits, converted if the view's dtype differs from the layout's.
std::optional<ExactFault> decode_exact(const Kernels& kernels, const PlaneLayout& layout, ConstByteSpan coded,
                                       const MutableTensorView& dst) noexcept;

}  // namespace lynx::codec
