// The raw coding: the source's bits, vectors head-major and adjacent. Memory copies, alike on every CPU.
#pragma once

#include "lynx/buffer.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::codec {

/// `coded` holds exactly the view's elements. Shapes and sizes are checked by the caller.
void encode_raw(const TensorView& src, ByteSpan coded) noexcept;

/// `coded` holds elements of type `coded_as`; they are converted where the view's type differs.
void decode_raw(ConstByteSpan coded, DType coded_as, const MutableTensorView& dst) noexcept;

}  // namespace lynx::codec
