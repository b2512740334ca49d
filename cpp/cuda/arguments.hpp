// From what a caller gives to what a kernel is told, with all checks that need no device.
#pragma once

#include "jobs.hpp"
#include "lynx/buffer.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::cuda {

/// They throw InvalidArgument, named after the public call, for what does not fit the layout.
[[nodiscard]] EncodeJob encode_job(const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                                   std::uint64_t* nonfinite_vectors);
[[nodiscard]] DecodeJob decode_job(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes,
                                   const MutableTensorView& dst);
[[nodiscard]] ExactEncodeJob exact_encode_job(const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                                              ByteSpan workspace);
[[nodiscard]] ExactDecodeJob exact_decode_job(const PlaneLayout& layout, ConstByteSpan coded,
                                              const MutableTensorView& dst, std::uint32_t* first_fault);

/// The same for the raw coding.
[[nodiscard]] RawJob raw_encode_job(const TensorView& src, const PlaneLayout& layout, ByteSpan coded);
[[nodiscard]] RawJob raw_decode_job(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes,
                                    const MutableTensorView& dst);

}  // namespace lynx::cuda
