// Views of the K or V tensor of one layer, as the caller holds it: any strides, host memory, never owned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lynx/dtype.hpp"

namespace lynx {

/// The strides, in elements, of a tensor [heads, tokens, head_dim] without gaps.
[[nodiscard]] constexpr std::array<std::int64_t, 3> contiguous_strides(
    const std::array<std::int64_t, 3>& shape) noexcept {
    return {shape[1] * shape[2], shape[2], 1};
}

/// [heads, tokens, head_dim]; strides count elements, have to be given (contiguous_strides() has the usual ones), and
/// may be anything (a transposed cache is only another set of strides) but 0 for the elements of a vector. The memory
/// is the caller's and has to outlive the call the view is passed to.
template <class Byte>
struct BasicTensorView {
    Byte* data = nullptr;
    DType dtype = DType::kBF16;
    std::array<std::int64_t, 3> shape{};
    std::array<std::int64_t, 3> strides{};

    [[nodiscard]] std::int64_t heads() const noexcept { return shape[0]; }
    [[nodiscard]] std::int64_t tokens() const noexcept { return shape[1]; }
    [[nodiscard]] std::int64_t head_dim() const noexcept { return shape[2]; }

    /// The first element of one head vector.
    [[nodiscard]] Byte* vector(std::int64_t head, std::int64_t token) const noexcept {
        return data + (head * strides[0] + token * strides[1]) * static_cast<std::int64_t>(size_of(dtype));
    }
};

using TensorView = BasicTensorView<const std::byte>;
using MutableTensorView = BasicTensorView<std::byte>;

}  // namespace lynx
