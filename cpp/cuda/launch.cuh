// What the launches of kernels share: which shape and type, which device, and errors as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "lynx/dtype.hpp"
#include "lynx/plane_layout.hpp"
#include "shape.hpp"

namespace lynx::cuda {

inline constexpr unsigned kBlockWarps = 4;
inline constexpr unsigned kBlockThreads = kBlockWarps * kLanes;

/// Throws Unsupported if there is no usable device, CudaError for anything else that is not success.
void check(cudaError_t status, const char* call, const char* what);

/// Makes the device on which `memory` lies the calling thread's, until it goes out of scope. Throws InvalidArgument if
/// that is no memory of a device.
class DeviceOf {
   public:
    DeviceOf(const char* call, const char* which, const void* memory);
    ~DeviceOf();
    DeviceOf(const DeviceOf&) = delete;
    DeviceOf& operator=(const DeviceOf&) = delete;

    /// Throws InvalidArgument if `memory` lies on another device; it names both.
    void check_same(const char* which, const void* memory) const;

   private:
    const char* call_;
    const char* which_;
    int device_ = 0;
    int before_ = 0;
};

/// This warp's number in a grid of kBlockThreads along x.
__device__ __forceinline__ std::uint32_t warp_index() {
    return blockIdx.x * kBlockWarps + threadIdx.x / kLanes;
}

[[nodiscard]] inline unsigned blocks_for(std::uint32_t warps) {
    return (warps + kBlockWarps - 1) / kBlockWarps;
}

template <class... Arguments>
void launch(const char* call, void (*kernel)(Arguments...), dim3 grid, cudaStream_t stream,
            std::type_identity_t<Arguments>... arguments) {
    void* pointers[] = {&arguments...};
    check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kBlockThreads), pointers, 0, stream), call,
          "cudaLaunchKernel");
}

template <DType kType>
using TypeConstant = std::integral_constant<DType, kType>;

template <class Use>
void with_type(DType type, Use use) {
    switch (type) {
        case DType::kBF16: return use(TypeConstant<DType::kBF16>{});
        case DType::kF16: return use(TypeConstant<DType::kF16>{});
        case DType::kF32: return use(TypeConstant<DType::kF32>{});
    }
}

template <class Use>
void with_any_shape(std::uint32_t head_dim, Use use) {
    if (head_dim <= kRowCoordinates) return use(AnyShape<1>(head_dim));
    use(AnyShape<kMaxHeadDim / kRowCoordinates>(head_dim));
}

/// The head_dims that models have are compiled in.
template <class Use>
void with_shape(std::uint32_t head_dim, Use use) {
    switch (head_dim) {
        case 64: return use(FixedShape<64>{});
        case 128: return use(FixedShape<128>{});
        case 256: return use(FixedShape<256>{});
        default: return with_any_shape(head_dim, use);
    }
}

}  // namespace lynx::cuda
