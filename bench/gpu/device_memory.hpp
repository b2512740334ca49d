// Device memory and CUDA calls for the check program: owned, and every error ends the program in words.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "lynx/buffer.hpp"

namespace gpu_check {

inline void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

class DeviceBytes {
   public:
    explicit DeviceBytes(std::size_t bytes) : bytes_(bytes) {
        check(cudaMalloc(&data_, bytes == 0 ? 1 : bytes), "cudaMalloc");
    }
    explicit DeviceBytes(lynx::ConstByteSpan host) : DeviceBytes(host.size()) { upload(host); }
    ~DeviceBytes() { cudaFree(data_); }
    DeviceBytes(const DeviceBytes&) = delete;
    DeviceBytes& operator=(const DeviceBytes&) = delete;

    void upload(lynx::ConstByteSpan host) {
        check(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice), "cudaMemcpy to the device");
    }
    [[nodiscard]] std::vector<std::byte> download() const {
        std::vector<std::byte> host(bytes_);
        check(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
        return host;
    }
    void fill(int value) { check(cudaMemset(data_, value, bytes_), "cudaMemset"); }

    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
    [[nodiscard]] lynx::ByteSpan span() const { return {data(), bytes_}; }
    [[nodiscard]] std::size_t size() const { return bytes_; }

    /// Any object in it.
    template <class T>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(data_);
    }

   private:
    void* data_ = nullptr;
    std::size_t bytes_;
};

}  // namespace gpu_check
