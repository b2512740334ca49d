// The codec on a CUDA device: the same bytes as Codec's, written and read by kernels on a stream of the caller's.
//
// Every call checks what it is given, puts its kernels on the stream and returns; it allocates nothing and waits for
// nothing. What it is given, pointers of device memory all of them, has to stay as it is until the stream has passed.
// The calling thread's current device does not matter: the kernels run where the coded tensor lies, and the stream has
// to be of that device. Any number of threads may call at once.
//
// In a build without CUDA the calls throw Unsupported, as they do where no device is; CudaError if the CUDA runtime
// refuses, with the call and its words; InvalidArgument for shapes, dtypes, sizes and memory that do not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lynx/buffer.hpp"
#include "lynx/device.hpp"
#include "lynx/export.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

struct CUstream_st;

namespace lynx {

/// "not built", or the toolkit and the architectures it was built for. Asks for no device.
[[nodiscard]] LYNX_API std::string_view cuda_description() noexcept;

namespace cuda {

/// The same type as cudaStream_t; nullptr is the default stream.
using Stream = CUstream_st*;

/// Can the calls below be used: was CUDA built in, and is there a device? Starts the CUDA driver.
[[nodiscard]] LYNX_API bool available();

/// The name and architecture of the current device, or why there is none.
[[nodiscard]] LYNX_API std::string device_description();

/// A device for NodeOptions::device, by its number. Throws Unsupported, InvalidArgument for a number that is none.
[[nodiscard]] LYNX_API std::shared_ptr<Device> open_device(int number = 0);

/// What decode_exact() leaves where every group was good.
inline constexpr std::uint32_t kNoFault = UINT32_MAX;

/// As Codec::encode. The elements of a vector are adjacent (src.strides[2] == 1), the other strides are free; `coded`
/// lies at a multiple of 16 bytes. `nonfinite_vectors`, if not null, is set to how many vectors were not finite.
LYNX_API void encode(const TensorView& src, const PlaneLayout& layout, ByteSpan coded, Stream stream,
                     std::uint64_t* nonfinite_vectors = nullptr);

/// As Codec::decode, into a dst whose elements are adjacent.
LYNX_API void decode(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes, const MutableTensorView& dst,
                     Stream stream);

/// How much memory encode_exact() takes beside the coded tensor, at a multiple of 4 bytes: four bytes for each 1,024
/// groups.
[[nodiscard]] LYNX_API std::size_t exact_workspace_bytes(const PlaneLayout& layout) noexcept;

/// As Codec::encode_exact. How many bytes of the payload it takes stands in the index: 8 times its last entry.
LYNX_API void encode_exact(const TensorView& src, const PlaneLayout& layout, ByteSpan coded, ByteSpan workspace,
                           Stream stream);

/// As Codec::decode_exact. `first_fault` is set to the number of the first group whose bytes no encoder writes, with
/// `dst` in part overwritten, or to kNoFault. Whoever uses `dst` has to look at it first.
LYNX_API void decode_exact(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& dst,
                           std::uint32_t* first_fault, Stream stream);

}  // namespace cuda
}  // namespace lynx
