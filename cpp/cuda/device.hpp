// What marks a function of a kernel: the CUDA compiler makes it one of the device, and a C++ compiler, with which the
// tests run the same lines lane by lane, makes it one of the host. The only place that asks which of them reads it.
#pragma once

#if defined(__CUDACC__)
#define LYNX_DEVICE __device__ __forceinline__
#define LYNX_UNROLL _Pragma("unroll")  // before a loop whose counter chooses a register
#else
#define LYNX_DEVICE inline
#define LYNX_UNROLL
#endif

namespace lynx::cuda {

/// Lanes of a warp.
inline constexpr unsigned kLanes = 32;

/// What a lane keeps of N values of one kind; on the device registers, so it is only ever indexed by constants there.
template <class T, unsigned kCount>
struct Values {
    T v[kCount];
};

}  // namespace lynx::cuda
