// What a caller passes, checked before it is used: by the codec and by its like on a device. All throw InvalidArgument.
#pragma once

#include <cstddef>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::codec {

/// All of a view but its strides, which are for the caller of this to judge.
template <class Byte>
void check_view(const char* call, const char* which, const BasicTensorView<Byte>& view, const TensorSpec& spec) {
    if (!is_valid(view.dtype))
        throw InvalidArgument(text(call, ": ", which, ".dtype is ", static_cast<unsigned>(view.dtype), ", no DType"));
    if (view.heads() != spec.heads || view.tokens() != spec.tokens || view.head_dim() != spec.head_dim)
        throw InvalidArgument(text(call, ": ", which, ".shape is [", view.heads(), ", ", view.tokens(), ", ",
                                   view.head_dim(), "] and the layout is of [", spec.heads, ", ", spec.tokens, ", ",
                                   spec.head_dim, "] (heads, tokens, head_dim)"));
    if (view.data == nullptr && spec.tokens != 0)
        throw InvalidArgument(text(call, ": ", which, ".data is null for a tensor that is not empty"));
}

inline void check_size(const char* call, const char* which, std::size_t bytes, const PlaneLayout& layout) {
    if (bytes != layout.bytes())
        throw InvalidArgument(
            text(call, ": ", which, " holds ", bytes, " bytes and the layout takes exactly ", layout.bytes()));
}

inline void check_planes(const char* call, const PlaneLayout& layout, unsigned planes) {
    if (planes < 1 || planes > layout.planes())
        throw InvalidArgument(text(call, ": planes is ", planes, "; this layout's can be 1 to ", layout.planes()));
}

inline void check_exact(const char* call, const PlaneLayout& layout) {
    if (!layout.has_exact())
        throw InvalidArgument(text(call, ": the layout has no exact tier; TensorSpec.exact asks for one"));
}

}  // namespace lynx::codec
