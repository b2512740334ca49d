// Bit-identity: planes, decoding from each number of planes, raw, the exact tier both ways, damaged bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "checks.hpp"
#include "codec/exact.hpp"
#include "codec/kernels.hpp"
#include "device_memory.hpp"
#include "lynx/codec.hpp"
#include "lynx/cuda.hpp"

namespace gpu_check {
namespace {

using lynx::Codec;
using lynx::DType;
using lynx::PlaneLayout;
using lynx::TensorSpec;

constexpr std::uint32_t kHeads = 3;
constexpr std::uint32_t kTokens = 301;
constexpr std::uint32_t kHeadDims[] = {8, 24, 64, 96, 128, 192, 256, 320, 512, 576, 1000, 1024};
constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

struct Counter {
    Check& check;
    void compare(lynx::ConstByteSpan got, lynx::ConstByteSpan expected) const {
        check.compared += expected.size();
        for (std::size_t i = 0; i < expected.size(); ++i) check.differing += got[i] != expected[i] ? 1 : 0;
    }
    void compare(std::uint64_t got, std::uint64_t expected) const {
        ++check.compared;
        check.differing += got != expected ? 1 : 0;
    }
};

struct Results {
    Check planes{"planes"}, counts{"count of vectors that are not finite"}, decoded{"decoded planes"}, raw{"raw"},
        exact{"exact tier"}, restored{"restored values"}, faults{"first fault of damaged bytes"};
};

/// Vectors of ordinary values, of any bits, of tiny values and of one value, in turn.
std::vector<std::byte> source_values(const TensorSpec& spec, std::mt19937& random) {
    std::vector<std::byte> bytes(std::size_t{spec.heads} * spec.tokens * spec.head_dim * size_of(spec.dtype));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    std::normal_distribution<float> normal;
    std::vector<float> row(spec.head_dim);
    const PlaneLayout floats(
        {.coding = lynx::Coding::kRaw, .dtype = DType::kF32, .heads = 1, .tokens = 1, .head_dim = spec.head_dim});
    for (std::size_t v = 0; v < std::size_t{spec.heads} * spec.tokens; ++v) {
        if (v % 8 == 1) continue;
        for (float& x : row) x = v % 8 == 2 ? -1.5f : normal(random) * (v % 8 == 3 ? 1e-7f : 1.0f);
        if (v % 8 != 2) row[3] += 12;
        // Raw decoding is a conversion.
        Codec::by_name("scalar").decode(
            floats, {reinterpret_cast<const std::byte*>(row.data()), row.size() * 4}, 1,
            {bytes.data() + v * spec.head_dim * size_of(spec.dtype), spec.dtype, {1, 1, spec.head_dim}, {0, 0, 1}});
    }
    return bytes;
}

template <class View, class Byte>
View view_of(const TensorSpec& spec, Byte* data, DType dtype) {
    return {data,
            dtype,
            {spec.heads, spec.tokens, spec.head_dim},
            {std::int64_t{spec.tokens} * spec.head_dim, spec.head_dim, 1}};
}

/// Both decoders on the same coded bytes.
void compare_decoding(const PlaneLayout& layout, const DeviceBytes& coded, lynx::ConstByteSpan host, unsigned planes,
                      DType to, const Counter& counter) {
    const TensorSpec& spec = layout.spec();
    std::vector<std::byte> expected(layout.vectors() * spec.head_dim * size_of(to));
    DeviceBytes out(expected.size());
    Codec::by_name("scalar").decode(layout, host, planes, view_of<lynx::MutableTensorView>(spec, expected.data(), to));
    lynx::cuda::decode(layout, coded.span(), planes, view_of<lynx::MutableTensorView>(spec, out.data(), to), nullptr);
    counter.compare(out.download(), expected);
}

void compare_planes(const TensorSpec& spec, std::mt19937& random, Results& results) {
    const Codec& cpu = Codec::by_name("scalar");
    const std::vector<std::byte> values = source_values(spec, random);
    const DeviceBytes source(values);
    for (const lynx::Coding coding : {lynx::Coding::kPlanes, lynx::Coding::kRaw}) {
        TensorSpec coded_spec = spec;
        coded_spec.coding = coding;
        coded_spec.sink_tokens = 4;
        const bool raw = coding == lynx::Coding::kRaw;
        const PlaneLayout layout(coded_spec);
        std::vector<std::byte> expected(layout.bytes());
        const auto stats = cpu.encode(view_of<lynx::TensorView>(spec, values.data(), spec.dtype), layout, expected);
        const DeviceBytes coded(layout.bytes());
        const DeviceBytes count(sizeof(std::uint64_t));
        lynx::cuda::encode(view_of<lynx::TensorView>(spec, source.data(), spec.dtype), layout, coded.span(), nullptr,
                           count.as<std::uint64_t>());
        Counter{raw ? results.raw : results.planes}.compare(coded.download(), expected);
        std::uint64_t nonfinite = 0;
        std::memcpy(&nonfinite, count.download().data(), sizeof nonfinite);
        Counter{results.counts}.compare(nonfinite, stats.nonfinite_vectors);
        for (unsigned planes = 1; planes <= layout.planes(); ++planes)
            for (const DType to : kTypes)
                compare_decoding(layout, coded, expected, planes, to, {raw ? results.raw : results.decoded});
    }
}

std::uint32_t cpu_fault(const PlaneLayout& layout, lynx::ConstByteSpan coded, lynx::MutableTensorView out) {
    const auto fault = lynx::codec::decode_exact(lynx::codec::kScalarKernels, layout, coded, out, nullptr);
    return fault ? static_cast<std::uint32_t>(fault->index) : lynx::cuda::kNoFault;
}

void compare_exact(TensorSpec spec, std::mt19937& random, Results& results) {
    const Codec& cpu = Codec::by_name("scalar");
    spec.exact = true;
    const PlaneLayout layout(spec);
    std::vector<std::byte> values = source_values(spec, random);
    const auto host_view = view_of<lynx::TensorView>(spec, values.data(), spec.dtype);
    std::vector<std::byte> expected(layout.bytes());
    cpu.encode(host_view, layout, expected);
    cpu.encode_exact(host_view, layout, expected);

    const DeviceBytes source(values);
    DeviceBytes coded(layout.bytes());
    coded.fill(0);
    const DeviceBytes workspace(lynx::cuda::exact_workspace_bytes(layout));
    const auto view = view_of<lynx::TensorView>(spec, source.data(), spec.dtype);
    lynx::cuda::encode(view, layout, coded.span(), nullptr);
    lynx::cuda::encode_exact(view, layout, coded.span(), workspace.span(), nullptr);
    Counter{results.exact}.compare(coded.download(), expected);

    const DeviceBytes out(values.size());
    const DeviceBytes fault(sizeof(std::uint32_t));
    const auto out_view = view_of<lynx::MutableTensorView>(spec, out.data(), spec.dtype);
    const auto device_fault = [&] {
        lynx::cuda::decode_exact(layout, coded.span(), out_view, fault.as<std::uint32_t>(), nullptr);
        std::uint32_t found = 0;
        std::memcpy(&found, fault.download().data(), sizeof found);
        return found;
    };
    Counter{results.faults}.compare(device_fault(), lynx::cuda::kNoFault);
    Counter{results.restored}.compare(out.download(), values);

    const std::size_t index = layout.exact_index().offset;
    for (int round = 0; round < 6; ++round) {
        std::vector<std::byte> bad = expected;
        for (int flips = 0; flips < 3; ++flips) {
            const std::size_t from = round % 2 == 0 ? index : 0;
            const std::size_t to = round % 2 == 0 ? layout.exact_index().end() : bad.size();
            bad[from + random() % (to - from)] ^= static_cast<std::byte>(1u << random() % 8);
        }
        coded.upload(bad);
        const auto cpu_out = view_of<lynx::MutableTensorView>(spec, values.data(), spec.dtype);
        Counter{results.faults}.compare(device_fault(), cpu_fault(layout, bad, cpu_out));
    }
}

}  // namespace

std::vector<Check> compare_with_cpu() {
    std::mt19937 random(1);
    Results r;
    for (const std::uint32_t head_dim : kHeadDims)
        for (const DType type : kTypes) {
            const TensorSpec spec{.dtype = type, .heads = kHeads, .tokens = kTokens, .head_dim = head_dim};
            compare_planes(spec, random, r);
            if (type != DType::kF32) compare_exact(spec, random, r);
        }
    return {r.planes, r.counts, r.decoded, r.raw, r.exact, r.restored, r.faults};
}

}  // namespace gpu_check
