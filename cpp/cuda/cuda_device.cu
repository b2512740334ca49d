// A CUDA device as lynx::Device: its memory, and streams that code and copy.
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "core/text.hpp"
#include "launch.cuh"
#include "lynx/cuda.hpp"
#include "lynx/error.hpp"

namespace lynx::cuda {
namespace {

/// Makes a device the calling thread's, until it goes out of scope.
class OnThread {
   public:
    explicit OnThread(int device) {
        check(cudaGetDevice(&before_), "lynx::Device", "cudaGetDevice");
        check(cudaSetDevice(device), "lynx::Device", "cudaSetDevice");
    }
    ~OnThread() { static_cast<void>(cudaSetDevice(before_)); }
    OnThread(const OnThread&) = delete;
    OnThread& operator=(const OnThread&) = delete;

   private:
    int before_ = 0;
};

class Memory final : public DeviceMemory {
   public:
    Memory(int device, MemoryKind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
        if (kind == MemoryKind::kHost)
            throw InvalidArgument("Device::allocate: host memory was asked for; a device gives pinned and CUDA memory");
        const OnThread scope(device);
        const bool pinned = kind == MemoryKind::kPinned;
        const cudaError_t status =
            pinned ? cudaHostAlloc(&data_, bytes, cudaHostAllocPortable) : cudaMalloc(&data_, bytes);
        if (status == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            throw ArenaFull(text(bytes, " bytes of ", name_of(kind), " memory were asked for; CUDA device ", device,
                                 pinned ? " could not pin so much of the host's" : " does not have them free"));
        }
        check(status, "Device::allocate", pinned ? "cudaHostAlloc" : "cudaMalloc");
    }
    ~Memory() override {
        static_cast<void>(kind_ == MemoryKind::kPinned ? cudaFreeHost(data_) : cudaFree(data_));
        static_cast<void>(cudaGetLastError());
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] ByteSpan span() const noexcept override { return {static_cast<std::byte*>(data_), bytes_}; }

   private:
    MemoryKind kind_;
    std::size_t bytes_;
    void* data_ = nullptr;
};

struct DestroyStream {
    void operator()(cudaStream_t stream) const noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
};
struct DestroyEvent {
    void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
};
using StreamHandle = std::unique_ptr<CUstream_st, DestroyStream>;
using EventHandle = std::unique_ptr<CUevent_st, DestroyEvent>;

StreamHandle make_stream(int device) {
    const OnThread scope(device);
    cudaStream_t stream = nullptr;
    // Not in step with the default stream: who needs an order says so.
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "Device::open_stream",
          "cudaStreamCreateWithFlags");
    return StreamHandle(stream);
}

EventHandle make_event(int device, unsigned flags) {
    const OnThread scope(device);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | flags), "Device::open_stream",
          "cudaEventCreateWithFlags");
    return EventHandle(event);
}

/// What kernels leave behind, in the device's memory and again in pinned memory.
struct Words {
    std::uint64_t nonfinite_vectors;
    std::uint32_t first_fault;
};

class WorkStream final : public DeviceStream {
   public:
    explicit WorkStream(int device)
        : device_(device),
          on_device_(device, MemoryKind::kCuda, sizeof(Words)),
          on_host_(device, MemoryKind::kPinned, sizeof(Words)),
          stream_(make_stream(device)),
          order_(make_event(device, 0)),
          // Whoever waits sleeps and does not spin.
          done_(make_event(device, cudaEventBlockingSync)) {
        reset();
    }
    ~WorkStream() override {
        // Memory that the work uses goes next.
        static_cast<void>(cudaStreamSynchronize(stream_.get()));
        static_cast<void>(cudaGetLastError());
    }

    void follow(void* caller) override {
        link("DeviceStream::follow", static_cast<cudaStream_t>(caller), stream_.get());
    }
    void precede(void* caller) override {
        link("DeviceStream::precede", stream_.get(), static_cast<cudaStream_t>(caller));
    }

    void encode(const TensorView& source, const PlaneLayout& layout, ByteSpan coded) override {
        const OnThread scope(device_);
        cuda::encode(source, layout, coded, stream_.get(), &words(on_device_).nonfinite_vectors);
        fetch(&Words::nonfinite_vectors);
        if (!layout.has_exact()) return;
        const std::size_t needed = exact_workspace_bytes(layout);
        if (needed != 0 && (workspace_ == nullptr || workspace_->span().size() < needed)) {
            // What the last encoding uses is over: a stream's work is waited for before more is put on it.
            workspace_ = std::make_unique<Memory>(device_, MemoryKind::kCuda, needed);
        }
        cuda::encode_exact(source, layout, coded, workspace_ == nullptr ? ByteSpan{} : workspace_->span(),
                           stream_.get());
    }

    void decode(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes,
                const MutableTensorView& destination) override {
        cuda::decode(layout, coded, planes, destination, stream_.get());
    }

    void decode_exact(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& destination) override {
        const OnThread scope(device_);
        cuda::decode_exact(layout, coded, destination, &words(on_device_).first_fault, stream_.get());
        fetch(&Words::first_fault);
    }

    void copy(ConstByteSpan from, ByteSpan to) override {
        if (from.size() != to.size())
            throw InvalidArgument(
                text("DeviceStream::copy: from ", from.size(), " bytes into ", to.size(), "; they have to be as many"));
        if (from.empty()) return;
        const OnThread scope(device_);
        check(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDefault, stream_.get()),
              "DeviceStream::copy", "cudaMemcpyAsync");
    }

    void clear(ByteSpan memory) override {
        if (memory.empty()) return;
        const OnThread scope(device_);
        check(cudaMemsetAsync(memory.data(), 0, memory.size(), stream_.get()), "DeviceStream::clear",
              "cudaMemsetAsync");
    }

    [[nodiscard]] DeviceOutcome wait() override {
        const OnThread scope(device_);
        check(cudaEventRecord(done_.get(), stream_.get()), "DeviceStream::wait", "cudaEventRecord");
        check(cudaEventSynchronize(done_.get()), "DeviceStream::wait", "cudaEventSynchronize");
        const Words found = words(on_host_);
        reset();
        return {found.nonfinite_vectors, found.first_fault != kNoFault};
    }

   private:
    [[nodiscard]] static Words& words(const Memory& memory) { return *reinterpret_cast<Words*>(memory.span().data()); }
    void reset() { words(on_host_) = {0, kNoFault}; }

    template <class Word>
    void fetch(Word Words::* word) {
        check(cudaMemcpyAsync(&(words(on_host_).*word), &(words(on_device_).*word), sizeof(Word),
                              cudaMemcpyDeviceToHost, stream_.get()),
              "DeviceStream", "cudaMemcpyAsync of what a kernel found");
    }

    /// What is put on `then` from now on comes after what is on `first`.
    void link(const char* call, cudaStream_t first, cudaStream_t then) {
        const OnThread scope(device_);
        check(cudaEventRecord(order_.get(), first), call, "cudaEventRecord");
        check(cudaStreamWaitEvent(then, order_.get(), 0), call, "cudaStreamWaitEvent");
    }

    const int device_;
    const Memory on_device_;
    const Memory on_host_;
    std::unique_ptr<Memory> workspace_;
    const StreamHandle stream_;
    const EventHandle order_;
    const EventHandle done_;
};

class CudaDevice final : public Device {
   public:
    explicit CudaDevice(int number) : number_(number) {
        int devices = 0;
        check(cudaGetDeviceCount(&devices), "cuda::open_device", "cudaGetDeviceCount");
        if (number < 0 || number >= devices)
            throw InvalidArgument(
                text("cuda::open_device: device ", number, " was asked for; there are ", devices, ", from 0 on"));
        const OnThread scope(number);
        check(cudaDeviceGetAttribute(&ordering_, cudaDevAttrGPUDirectRDMAWritesOrdering, number), "cuda::open_device",
              "cudaDeviceGetAttribute");
    }

    [[nodiscard]] int number() const noexcept override { return number_; }

    [[nodiscard]] std::unique_ptr<DeviceMemory> allocate(MemoryKind kind, std::size_t bytes) override {
        return std::make_unique<Memory>(number_, kind, bytes);
    }

    [[nodiscard]] MemoryKind kind_of(const void* memory) const override {
        const OnThread scope(number_);
        cudaPointerAttributes found{};
        check(cudaPointerGetAttributes(&found, memory), "Device::kind_of", "cudaPointerGetAttributes");
        if (found.type == cudaMemoryTypeUnregistered) return MemoryKind::kHost;
        if (found.type == cudaMemoryTypeHost) return MemoryKind::kPinned;
        if (found.device != number_)
            throw InvalidArgument(
                text("memory of CUDA device ", found.device, " was given where device ", number_, " is at work"));
        return MemoryKind::kCuda;
    }

    [[nodiscard]] std::optional<Dmabuf> export_dmabuf(ByteSpan memory) const override;

    void flush_remote_writes() override {
        if (ordering_ >= cudaGPUDirectRDMAWritesOrderingOwner) return;  // they are seen in order as it is
        const OnThread scope(number_);
        check(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                 cudaFlushGPUDirectRDMAWritesToOwner),
              "Device::flush_remote_writes", "cudaDeviceFlushGPUDirectRDMAWrites");
    }

    [[nodiscard]] std::unique_ptr<DeviceStream> open_stream() override { return std::make_unique<WorkStream>(number_); }

   private:
    const int number_;
    int ordering_ = 0;
};

/// A function of the driver, which is not linked: what is built has to run where there is none.
template <class Function>
Function driver_function(const char* name, unsigned since) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &result);
#else
    static_cast<void>(since);
    const cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    static_cast<void>(cudaGetLastError());
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(found) : nullptr;
}

std::optional<Dmabuf> CudaDevice::export_dmabuf(ByteSpan memory) const {
    using Export = CUresult (*)(void*, CUdeviceptr, std::size_t, CUmemRangeHandleType, unsigned long long);
    const OnThread scope(number_);
    const auto export_range = driver_function<Export>("cuMemGetHandleForAddressRange", 11070);
    if (export_range == nullptr) return std::nullopt;
    // The driver takes whole pages of the host's.
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::uintptr_t begin = at / page * page;
    const std::uintptr_t end = (at + memory.size() + page - 1) / page * page;
    int file = -1;
    if (export_range(&file, begin, end - begin, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS)
        return std::nullopt;
    return std::optional<Dmabuf>(std::in_place, file, at - begin);
}

}  // namespace

std::shared_ptr<Device> open_device(int number) {
    return std::make_shared<CudaDevice>(number);
}

}  // namespace lynx::cuda
