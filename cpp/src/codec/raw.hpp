// The raw coding: the source's bits, vectors head-major and adjacent. Memory copies, alike on every CPU.
#pragma once

#include "codec/pieces.hpp"
#include "codec/strided.hpp"
#include "lynx/buffer.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::codec {

/// The piece's vectors of a tensor whose elements `coded` holds exactly. Shapes and sizes are checked by the caller.
void encode_raw(const TensorView& src, const Piece& piece, ByteSpan coded) noexcept;

/// `coded` holds elements of type `coded_as`; they are converted where the view's type differs.
void decode_raw(ConstByteSpan coded, DType coded_as, const Piece& piece, const MutableTensorView& dst) noexcept;

/// Vectors of `count` elements, one behind the other, into the run's, converted where the types differ.
void write_values(const std::byte* values, DType values_as, std::size_t count, const Run<std::byte>& run,
                  DType run_as) noexcept;

}  // namespace lynx::codec
