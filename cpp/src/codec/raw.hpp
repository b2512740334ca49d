// The raw coding: the source's bits, vectors head-major and adjacent. Memory copies, alike on every CPU.
#pragma once

#include "codec/pieces.hpp"
#include "lynx/buffer.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::codec {

/// The piece's vectors of a tensor whose elements `coded` holds exactly. Shapes and sizes are checked by the caller.
void encode_raw(const TensorView& src, const Piece& piece, ByteSpan coded) noexcept;

/// `coded` holds elements of type `coded_as`; they are converted where the view's type differs.
void decode_raw(ConstByteSpan coded, DType coded_as, const Piece& piece, const MutableTensorView& dst) noexcept;

}  // namespace lynx::codec
