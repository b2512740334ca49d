// The exact tier of a whole tensor: groups of vectors, their index, and their bits one group behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "codec/kernels.hpp"
#include "lynx/buffer.hpp"
#include "lynx/executor.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::codec {

/// Writes index and payload behind the planes that `coded` holds. Returns the payload's bytes. Shapes, sizes and
/// dtypes are checked by the caller. Throws what the executor throws.
std::size_t encode_exact(const Kernels& kernels, const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                         Executor* executor);

/// What can be wrong with a group that an encoder has not written.
enum class ExactFault : std::uint8_t { kEndsTooEarly, kTooLong, kBadBits };
inline constexpr std::size_t kExactFaults = 3;

struct FaultyGroup {
    std::size_t index;
    ExactFault fault;
};

/// Restores the source's bits, converted if the view's dtype differs from the layout's. Returns the first group that
/// cannot be decoded, if there is one; the destination is then overwritten in part.
std::optional<FaultyGroup> decode_exact(const Kernels& kernels, const PlaneLayout& layout, ConstByteSpan coded,
                                        const MutableTensorView& dst, Executor* executor);

}  // namespace lynx::codec
