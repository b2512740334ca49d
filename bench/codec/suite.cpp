#include "suite.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>

namespace lynx::bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr std::size_t kBytesASample = 16 * kMiB;  // Small tensors are coded several times for one sample.
constexpr std::array kHeadDims{64u, 128u, 256u};
/// What other models have; in the full run, and only far beyond the caches.
constexpr std::array kOtherHeadDims{80u, 96u, 192u, 576u};
constexpr int kRepetitions = 15;
constexpr int kScalarRepetitions = 3;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Of `calls` runs, each after `before`, which is not counted.
double time_runs(std::size_t calls, const Call& call, void (*before)(const Call&), void (*run)(const Call&)) {
    double total = 0;
    for (std::size_t i = 0; i < calls; ++i) {
        if (before != nullptr) before(call);
        const auto start = std::chrono::steady_clock::now();
        run(call);
        total += seconds_since(start);
    }
    return total;
}

void copy(const Call& call) {
    const std::size_t bytes = call.layout.vectors() * call.layout.spec().head_dim * size_of(call.source.dtype);
    std::memcpy(call.destination.data, call.source.data, bytes);
    benchmark::ClobberMemory();
}

/// One repetition: memcpy, then the kernel, so that both see the same state of the machine.
void measure(benchmark::State& state, const Case& what, Arrays& arrays) {
    const PlaneLayout layout(what.spec);
    const TensorView source = arrays.source(layout);
    const Call call{*what.codec, layout, source, arrays.destination(layout),
                    what.kernel->reads_coded ? arrays.coded_source(layout) : arrays.coded(layout)};
    const std::size_t calls = std::max<std::size_t>(1, kBytesASample / what.source_bytes);
    const auto each = static_cast<double>(calls);
    const auto bytes = static_cast<double>(what.source_bytes);
    for (auto _ : state) {
        const double memcpy_seconds = time_runs(calls, call, nullptr, copy) / each;
        if (what.kernel->beside != nullptr)
            state.counters["beside_seconds"] = time_runs(calls, call, copy, what.kernel->beside) / each;
        const double seconds = time_runs(calls, call, what.kernel->before, what.kernel->run) / each;
        state.SetIterationTime(seconds);
        state.counters["seconds"] = seconds;
        state.counters["memcpy_seconds"] = memcpy_seconds;
        state.counters["GB/s"] = bytes / seconds / 1e9;
        state.counters["of_memcpy"] = memcpy_seconds / seconds;
    }
}

std::size_t last_level_cache() {
    std::size_t largest = 0;
    for (const auto& cache : benchmark::CPUInfo::Get().caches)
        largest = std::max(largest, static_cast<std::size_t>(cache.size));
    return largest;
}

bool is_scalar(const Codec& codec) {
    return codec.name() == "scalar";
}

std::vector<std::size_t> sizes_of(const Codec& codec, std::uint32_t head_dim, bool full) {
    if (full) return {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, kGiB};
    // The reference is ten times slower and the same in every cache.
    const bool is_fastest = codec.name() == Codec::available().front();
    if (is_scalar(codec) && !is_fastest) return {16 * kMiB};
    std::vector<std::size_t> sizes{kMiB, 16 * kMiB, memory_bytes()};
    if (is_fastest && !is_scalar(codec) && head_dim == 128 && memory_bytes() < kGiB) sizes.push_back(kGiB);
    return sizes;
}

}  // namespace

std::string Case::name() const {
    return std::string(kernel->name) + "/" + std::string(name_of(spec.dtype)) + "/isa:" + std::string(codec->name()) +
           "/head_dim:" + std::to_string(spec.head_dim) + "/bytes:" + std::to_string(source_bytes);
}

std::size_t memory_bytes() {
    return std::clamp(std::bit_ceil(8 * last_level_cache()), 256 * kMiB, kGiB);
}

void add_cases(DType dtype, const Codec& codec, std::uint32_t head_dim, const std::vector<std::size_t>& sizes,
               std::vector<Case>& cases) {
    for (const std::size_t bytes : sizes) {
        for (const Kernel& kernel : kernels()) {
            if (dtype != DType::kBF16 && !kernel.any_dtype) continue;
            if (dtype == DType::kF32 && kernel.exact) continue;
            TensorSpec spec = spec_of(dtype, head_dim, bytes);
            spec.exact = kernel.exact;
            cases.push_back({&kernel, &codec, spec, bytes, is_scalar(codec) ? kScalarRepetitions : kRepetitions});
        }
    }
}

std::vector<Case> cases(bool full) {
    std::vector<Case> all;
    // By dtype and tensor first: the arrays are filled and coded anew for each.
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        if (dtype != DType::kBF16 && !full) continue;
        for (const std::uint32_t head_dim : kHeadDims)
            for (const std::string_view isa : Codec::available()) {
                const Codec& codec = Codec::by_name(isa);
                add_cases(dtype, codec, head_dim, sizes_of(codec, head_dim, full), all);
            }
        for (const std::uint32_t head_dim : kOtherHeadDims)
            for (const std::string_view isa : Codec::available()) {
                const Codec& codec = Codec::by_name(isa);
                if (full && !is_scalar(codec)) add_cases(dtype, codec, head_dim, {memory_bytes()}, all);
            }
    }
    return all;
}

void register_cases(const std::vector<Case>& cases, Arrays& arrays) {
    for (const Case& what : cases) {
        benchmark::RegisterBenchmark(what.name().c_str(),
                                     [what, &arrays](benchmark::State& state) { measure(state, what, arrays); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(1)
            ->Repetitions(what.repetitions);
    }
}

}  // namespace lynx::bench
