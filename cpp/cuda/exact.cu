// The kernels of the exact tier: a warp takes a group.
#include "arguments.hpp"
#include "exact_decode_phases.hpp"
#include "exact_encode_phases.hpp"
#include "launch.cuh"
#include "lynx/cuda.hpp"
#include "warp_device.cuh"

namespace lynx::cuda {
namespace {

template <DType kType, class Shape>
__global__ void __launch_bounds__(kBlockThreads) measure_kernel(Shape shape, ExactEncodeJob job) {
    DeviceWarp warp;
    if (warp_index() < job.groups.count) measure_group<kType>(warp, shape, job, warp_index());
}

__global__ void __launch_bounds__(kBlockThreads) sum_kernel(ExactEncodeJob job) {
    DeviceWarp warp;
    if (warp_index() < tiles_of(job.groups)) sum_tile(warp, job, warp_index());
}

__global__ void __launch_bounds__(kBlockThreads) scan_tiles_kernel(ExactEncodeJob job) {
    DeviceWarp warp;
    if (warp_index() == 0) scan_tiles(warp, job);
}

__global__ void __launch_bounds__(kBlockThreads) scan_kernel(ExactEncodeJob job) {
    DeviceWarp warp;
    if (warp_index() < tiles_of(job.groups)) scan_tile(warp, job, warp_index());
}

template <DType kType, class Shape>
__global__ void __launch_bounds__(kBlockThreads) write_kernel(Shape shape, ExactEncodeJob job) {
    __shared__ std::uint32_t scratch[kBlockWarps][kScratchWords];
    DeviceWarp warp(scratch[threadIdx.x / kLanes]);
    if (warp_index() < job.groups.count) write_group<kType>(warp, shape, job, warp_index());
}

template <DType kType, DType kTo, class Shape>
__global__ void __launch_bounds__(kBlockThreads) decode_kernel(Shape shape, ExactDecodeJob job) {
    __shared__ std::uint32_t scratch[kBlockWarps][kRowCoordinates];
    DeviceWarp warp(scratch[threadIdx.x / kLanes]);
    if (warp_index() < job.groups.count) decode_group<kType, kTo>(warp, shape, job, warp_index());
}

template <class Use>
void with_exact_type(DType type, Use use) {
    if (type == DType::kBF16) return use(TypeConstant<DType::kBF16>{});
    use(TypeConstant<DType::kF16>{});
}

}  // namespace

void encode_exact(const TensorView& src, const PlaneLayout& layout, ByteSpan coded, ByteSpan workspace, Stream stream) {
    constexpr const char* kCall = "cuda::encode_exact";
    const ExactEncodeJob job = exact_encode_job(src, layout, coded, workspace);
    if (layout.vectors() == 0) return;
    const DeviceOf device(kCall, "coded", coded.data());
    device.check_same("src", src.data);
    device.check_same("workspace", workspace.data());
    const unsigned group_blocks = blocks_for(job.groups.count);
    const unsigned tile_blocks = blocks_for(tiles_of(job.groups));
    with_shape(layout.spec().head_dim, [&](auto shape) {
        with_exact_type(src.dtype, [&](auto type) {
            launch(kCall, measure_kernel<type.value, decltype(shape)>, group_blocks, stream, shape, job);
            launch(kCall, sum_kernel, tile_blocks, stream, job);
            launch(kCall, scan_tiles_kernel, 1, stream, job);
            launch(kCall, scan_kernel, tile_blocks, stream, job);
            launch(kCall, write_kernel<type.value, decltype(shape)>, group_blocks, stream, shape, job);
        });
    });
}

void decode_exact(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& dst,
                  std::uint32_t* first_fault, Stream stream) {
    constexpr const char* kCall = "cuda::decode_exact";
    const ExactDecodeJob job = exact_decode_job(layout, coded, dst, first_fault);
    const bool empty = layout.vectors() == 0;
    const DeviceOf device(kCall, "first_fault", first_fault);
    if (!empty) {
        device.check_same("coded", coded.data());
        device.check_same("dst", dst.data);
    }
    check(cudaMemsetAsync(first_fault, 0xff, sizeof *first_fault, stream), kCall, "cudaMemsetAsync");
    if (empty) return;
    const DType from = layout.spec().dtype;
    const unsigned blocks = blocks_for(job.groups.count);
    with_exact_type(from, [&](auto source) {
        if (dst.dtype == from)
            return with_shape(layout.spec().head_dim, [&](auto shape) {
                launch(kCall, decode_kernel<source.value, source.value, decltype(shape)>, blocks, stream, shape, job);
            });
        with_any_shape(layout.spec().head_dim, [&](auto shape) {
            with_type(dst.dtype, [&](auto target) {
                launch(kCall, decode_kernel<source.value, target.value, decltype(shape)>, blocks, stream, shape, job);
            });
        });
    });
}

}  // namespace lynx::cuda
