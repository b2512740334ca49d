// The kernels for planes and for the raw coding.
#include <algorithm>

#include "arguments.hpp"
#include "decode_phases.hpp"
#include "encode_phases.hpp"
#include "launch.cuh"
#include "lynx/cuda.hpp"
#include "raw_phases.hpp"
#include "warp_device.cuh"

namespace lynx::cuda {
namespace {

constexpr std::uint32_t kMaxGridY = 65535;

// A warp takes one slab of tokens, of as many heads as the grid does not spread.
template <class Shape>
__device__ __forceinline__ std::uint32_t first_token_of_warp(const Shape& shape) {
    return warp_index() * slab_vectors(shape);
}

template <DType kType, class Shape>
__global__ void __launch_bounds__(kBlockThreads) encode_kernel(Shape shape, EncodeJob job) {
    DeviceWarp warp;
    const std::uint32_t token = first_token_of_warp(shape);
    if (token >= job.coded.tokens) return;
    for (std::uint32_t head = blockIdx.y; head < job.coded.heads; head += gridDim.y)
        encode_slab<kType>(warp, shape, job, head, token);
}

template <DType kType, class Shape>
__global__ void __launch_bounds__(kBlockThreads) decode_kernel(Shape shape, DecodeJob job) {
    DeviceWarp warp;
    const std::uint32_t token = first_token_of_warp(shape);
    if (token >= job.coded.tokens) return;
    for (std::uint32_t head = blockIdx.y; head < job.coded.heads; head += gridDim.y)
        decode_slab<kType>(warp, shape, job, head, token);
}

template <DType kFrom, DType kTo, class Shape>
__global__ void __launch_bounds__(kBlockThreads) raw_kernel(Shape shape, RawJob job) {
    DeviceWarp warp;
    const std::uint32_t token = first_token_of_warp(shape);
    if (token >= job.tokens) return;
    for (std::uint32_t head = blockIdx.y; head < job.heads; head += gridDim.y)
        copy_slab<kFrom, kTo>(warp, shape, job, head, token);
}

template <class Shape>
dim3 grid_of(const Shape& shape, std::uint32_t heads, std::uint32_t tokens) {
    const std::uint32_t slabs = (tokens + slab_vectors(shape) - 1) / slab_vectors(shape);
    return {blocks_for(slabs), std::min(heads, kMaxGridY)};
}

void launch_raw(const char* call, const RawJob& job, std::uint32_t head_dim, DType from, DType to, Stream stream) {
    with_any_shape(head_dim, [&](auto shape) {
        with_type(from, [&](auto source) {
            with_type(to, [&](auto target) {
                launch(call, raw_kernel<source.value, target.value, decltype(shape)>,
                       grid_of(shape, job.heads, job.tokens), stream, shape, job);
            });
        });
    });
}

}  // namespace

void encode(const TensorView& src, const PlaneLayout& layout, ByteSpan coded, Stream stream,
            std::uint64_t* nonfinite_vectors) {
    constexpr const char* kCall = "cuda::encode";
    const TensorSpec& spec = layout.spec();
    const bool raw = spec.coding == Coding::kRaw;
    const EncodeJob job = raw ? EncodeJob{} : encode_job(src, layout, coded, nonfinite_vectors);
    const RawJob raw_job = raw ? raw_encode_job(src, layout, coded) : RawJob{};
    const bool empty = layout.vectors() == 0;
    if (empty && nonfinite_vectors == nullptr) return;
    // An empty tensor may have no memory, and its count is set all the same.
    const DeviceOf device =
        empty ? DeviceOf(kCall, "nonfinite_vectors", nonfinite_vectors) : DeviceOf(kCall, "coded", coded.data());
    if (!empty) device.check_same("src", src.data);
    if (nonfinite_vectors != nullptr) {
        device.check_same("nonfinite_vectors", nonfinite_vectors);
        check(cudaMemsetAsync(nonfinite_vectors, 0, sizeof *nonfinite_vectors, stream), kCall, "cudaMemsetAsync");
    }
    if (empty) return;
    if (raw) return launch_raw(kCall, raw_job, spec.head_dim, spec.dtype, spec.dtype, stream);
    with_shape(spec.head_dim, [&](auto shape) {
        with_type(src.dtype, [&](auto type) {
            launch(kCall, encode_kernel<type.value, decltype(shape)>, grid_of(shape, spec.heads, spec.tokens), stream,
                   shape, job);
        });
    });
}

void decode(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes, const MutableTensorView& dst,
            Stream stream) {
    constexpr const char* kCall = "cuda::decode";
    const TensorSpec& spec = layout.spec();
    const bool raw = spec.coding == Coding::kRaw;
    const DecodeJob job = raw ? DecodeJob{} : decode_job(layout, coded, planes, dst);
    const RawJob raw_job = raw ? raw_decode_job(layout, coded, planes, dst) : RawJob{};
    if (layout.vectors() == 0) return;
    const DeviceOf device(kCall, "coded", coded.data());
    device.check_same("dst", dst.data);
    if (raw) return launch_raw(kCall, raw_job, spec.head_dim, spec.dtype, dst.dtype, stream);
    with_shape(spec.head_dim, [&](auto shape) {
        with_type(dst.dtype, [&](auto type) {
            launch(kCall, decode_kernel<type.value, decltype(shape)>, grid_of(shape, spec.heads, spec.tokens), stream,
                   shape, job);
        });
    });
}

}  // namespace lynx::cuda
