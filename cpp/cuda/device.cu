// The device itself, and what the runtime says of it.
#include <string>

#include "core/text.hpp"
#include "launch.cuh"
#include "lynx/cuda.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace cuda {
namespace {

bool is_on_device(const cudaPointerAttributes& attributes) {
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

cudaPointerAttributes attributes_of(const char* call, const char* which, const void* memory) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), call, "cudaPointerGetAttributes");
    if (!is_on_device(attributes))
        throw InvalidArgument(
            text(call, ": ", which, " does not lie in a device's memory; Codec works on host memory"));
    return attributes;
}

/// The runtime has the same words for a driver that is too old and for none.
std::string words_of(cudaError_t status) {
    int driver = 0;
    if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
        return "no CUDA driver is installed";
    return cudaGetErrorString(status);
}

}  // namespace

void check(cudaError_t status, const char* call, const char* what) {
    if (status == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());  // or the next caller would be told of it
    const std::string why = text(call, ": ", what, ": ", words_of(status));
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver || status == cudaErrorSystemDriverMismatch)
        throw Unsupported(text(why, "; use Codec on tensors in host memory"));
    if (status == cudaErrorNoKernelImageForDevice)
        throw Unsupported(text(why, "; this build has ", cuda_description(), ": set CMAKE_CUDA_ARCHITECTURES"));
    throw CudaError(why);
}

DeviceOf::DeviceOf(const char* call, const char* which, const void* memory) : call_(call), which_(which) {
    device_ = attributes_of(call, which, memory).device;
    check(cudaGetDevice(&before_), call, "cudaGetDevice");
    if (device_ != before_) check(cudaSetDevice(device_), call, "cudaSetDevice");
}

DeviceOf::~DeviceOf() {
    if (device_ != before_) static_cast<void>(cudaSetDevice(before_));
}

void DeviceOf::check_same(const char* which, const void* memory) const {
    const int device = attributes_of(call_, which, memory).device;
    if (device != device_)
        throw InvalidArgument(
            text(call_, ": ", which, " lies on device ", device, " and ", which_, " on device ", device_));
}

bool available() {
    int devices = 0;
    const bool found = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    static_cast<void>(cudaGetLastError());
    return found;
}

std::string device_description() {
    int device = 0;
    cudaDeviceProp properties{};
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
    static_cast<void>(cudaGetLastError());
    if (status != cudaSuccess) return text("no device: ", words_of(status));
    return text(properties.name, ", sm_", properties.major, properties.minor);
}

}  // namespace cuda

std::string_view cuda_description() noexcept {
    return LYNX_CUDA_DESCRIPTION;
}

}  // namespace lynx
