// Times by events on one stream, each kernel between two copies of the same number of bytes, so that a clock that
// changes meanwhile changes both.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>

#include "checks.hpp"
#include "device_memory.hpp"
#include "lynx/codec.hpp"
#include "lynx/cuda.hpp"

namespace gpu_check {
namespace {

using lynx::DType;
using lynx::PlaneLayout;

class Event {
   public:
    Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
    [[nodiscard]] double milliseconds_since(const Event& before) const {
        check(cudaEventSynchronize(event_), "cudaEventSynchronize");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, before.event_, event_), "cudaEventElapsedTime");
        return milliseconds;
    }

   private:
    cudaEvent_t event_{};
};

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    return values[values.size() / 2];
}

double time_once(const std::function<void()>& work, cudaStream_t stream) {
    Event before;
    Event after;
    before.record(stream);
    work();
    after.record(stream);
    return after.milliseconds_since(before);
}

/// Normal values with an outlier coordinate, as keys have: a piece made on the host, repeated on the device.
void fill_source(const DeviceBytes& source, std::uint32_t head_dim) {
    const std::size_t piece = std::min<std::size_t>(source.size(), std::size_t{16} << 20);
    std::vector<std::byte> host(piece);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < piece / 2; ++i) {
        const float value = normal(random) + (i % head_dim == 3 ? 12.0f : 0.0f);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        const auto upper = static_cast<std::uint16_t>(bits >> 16);
        std::memcpy(host.data() + 2 * i, &upper, sizeof upper);
    }
    for (std::size_t at = 0; at < source.size(); at += piece)
        check(cudaMemcpy(source.data() + at, host.data(), std::min(piece, source.size() - at), cudaMemcpyHostToDevice),
              "cudaMemcpy to the device");
}

void time_head_dim(std::uint32_t head_dim, std::size_t source_bytes, int repetitions, std::vector<Timing>& timings) {
    constexpr std::uint32_t kHeads = 8;
    const auto tokens = static_cast<std::uint32_t>(source_bytes / 2 / kHeads / head_dim);
    const PlaneLayout layout({.heads = kHeads, .tokens = tokens, .head_dim = head_dim, .exact = true});
    const DeviceBytes source(std::size_t{kHeads} * tokens * head_dim * 2);
    fill_source(source, head_dim);
    const DeviceBytes coded(layout.bytes());
    const DeviceBytes out(source.size());
    const DeviceBytes workspace(lynx::cuda::exact_workspace_bytes(layout));
    const DeviceBytes fault(sizeof(std::uint32_t));
    const std::array<std::int64_t, 3> shape{kHeads, tokens, head_dim};
    const std::array<std::int64_t, 3> strides{std::int64_t{tokens} * head_dim, head_dim, 1};
    const lynx::TensorView from{source.data(), DType::kBF16, shape, strides};
    const lynx::MutableTensorView to{out.data(), DType::kBF16, shape, strides};
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");

    const auto copy = [&] {
        check(cudaMemcpyAsync(out.data(), source.data(), source.size(), cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
    };
    struct Kernel {
        const char* name;
        std::function<void()> run;
    };
    const Kernel kernels[] = {
        {"encode, 8 planes", [&] { lynx::cuda::encode(from, layout, coded.span(), stream); }},
        {"decode, 4 planes", [&] { lynx::cuda::decode(layout, coded.span(), 4, to, stream); }},
        {"decode, 8 planes", [&] { lynx::cuda::decode(layout, coded.span(), 8, to, stream); }},
        {"encode exact", [&] { lynx::cuda::encode_exact(from, layout, coded.span(), workspace.span(), stream); }},
        {"decode exact",
         [&] { lynx::cuda::decode_exact(layout, coded.span(), to, fault.as<std::uint32_t>(), stream); }},
    };
    for (const Kernel& kernel : kernels) {
        std::vector<double> kernel_times;
        std::vector<double> copy_times;
        for (int i = 0; i < repetitions + 2; ++i) {
            const double copied = time_once(copy, stream);
            const double run = time_once(kernel.run, stream);
            if (i < 2) continue;  // the first ones load the kernel
            copy_times.push_back(copied);
            kernel_times.push_back(run);
        }
        timings.push_back(
            {kernel.name, head_dim, median(kernel_times), median(copy_times), static_cast<double>(source.size())});
    }
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace

std::vector<Timing> time_kernels(std::size_t source_bytes, int repetitions) {
    std::vector<Timing> timings;
    for (const std::uint32_t head_dim : {64u, 128u, 256u, 96u, 576u})
        time_head_dim(head_dim, source_bytes, repetitions, timings);
    return timings;
}

}  // namespace gpu_check
