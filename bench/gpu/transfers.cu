// Whole transfers on the device, both sides in this process: encode kernel, arena, wire, arena, decode kernel. What
// comes out is compared with the source (the exact tier), or with what the codec's kernels make of it without a wire;
// those are compared with the CPU's elsewhere.
#include <chrono>
#include <cstring>
#include <random>

#include "checks.hpp"
#include "device_memory.hpp"
#include "lynx/cuda.hpp"
#include "lynx/plane_receiver.hpp"
#include "lynx/plane_sender.hpp"

namespace gpu_check {
namespace {

using lynx::DevicePath;
using lynx::MemoryKind;

constexpr std::uint32_t kLayers = 4;
constexpr lynx::TensorSpec kSpec{.heads = 8, .tokens = 2048, .head_dim = 128};
constexpr std::size_t kTensorBytes = std::size_t{kSpec.heads} * kSpec.tokens * kSpec.head_dim * 2;
constexpr lynx::TensorRole kRoles[] = {lynx::TensorRole::kKey, lynx::TensorRole::kValue};

template <class View>
View view_of(const DeviceBytes& bytes) {
    const std::array<std::int64_t, 3> shape{kSpec.heads, kSpec.tokens, kSpec.head_dim};
    return {bytes.data(), lynx::DType::kBF16, shape, lynx::contiguous_strides(shape)};
}

std::vector<std::byte> random_values(std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<std::byte> bytes(kTensorBytes);
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
        const float value = normal(random);
        std::memcpy(&bytes[i], reinterpret_cast<const std::byte*>(&value) + 2, 2);
    }
    return bytes;
}

/// What the kernels make of it through `part`, with no wire between them.
std::vector<std::byte> expected(const DeviceBytes& source, const lynx::TensorSpec& spec) {
    const lynx::PlaneLayout layout(spec);
    const DeviceBytes coded(layout.bytes());
    const DeviceBytes out(kTensorBytes);
    lynx::cuda::encode(view_of<lynx::TensorView>(source), layout, coded.span(), nullptr);
    lynx::cuda::decode(layout, coded.span(), lynx::kPlaneCount, view_of<lynx::MutableTensorView>(out), nullptr);
    return out.download();
}

Transfer transfer(const std::string& provider, MemoryKind memory) {
    const auto device = lynx::cuda::open_device(0);
    const lynx::NodeOptions options{
        .fabric = {provider, "127.0.0.1"}, .arena_bytes = std::size_t{256} << 20, .memory = memory, .device = device};
    lynx::Node prefill(options), decode(options);
    const bool exact = decode.device_path() == DevicePath::kStaged && prefill.device_path() == DevicePath::kStaged;
    Transfer result{.provider = prefill.provider(), .memory = std::string(name_of(memory))};
    result.path = exact ? "staged" : "direct";
    result.why = prefill.why_not_direct();

    lynx::TensorSpec spec = kSpec;
    spec.exact = exact;
    lynx::Manifest manifest{.request_id = 1,
                            .model = "check",
                            .context_tokens = kSpec.tokens,
                            .parts = static_cast<std::uint8_t>(exact ? 3 : 2)};
    manifest.checksums = exact;
    std::mt19937 random(1);
    std::vector<std::vector<std::byte>> values;
    std::vector<std::unique_ptr<DeviceBytes>> sources, targets;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer)
        for (const auto role : kRoles) {
            manifest.tensors.push_back({layer, role, spec});
            values.push_back(random_values(random));
            sources.push_back(std::make_unique<DeviceBytes>(values.back()));
            targets.push_back(std::make_unique<DeviceBytes>(kTensorBytes));
        }
    result.source_bytes = static_cast<double>(values.size() * kTensorBytes);

    const lynx::PeerId peer = prefill.add_peer(decode.address());
    lynx::PlaneReceiver receiver(decode, manifest);
    lynx::PlaneSender sender(prefill, peer, manifest, receiver.grant());
    const auto deadline = lynx::Deadline::after(std::chrono::seconds(20));
    const auto begin = lynx::Clock::now();
    for (std::size_t i = 0; i < sources.size(); ++i)
        sender.put(static_cast<std::uint32_t>(i / 2), kRoles[i % 2], view_of<lynx::TensorView>(*sources[i]),
                   lynx::OnDevice{});
    const unsigned part = manifest.parts - 1u;
    if (!receiver.wait(part, deadline))
        throw std::runtime_error("the transfer over " + provider + " did not end in time");
    for (std::size_t i = 0; i < targets.size(); ++i)
        receiver.decode(static_cast<std::uint32_t>(i / 2), kRoles[i % 2], part,
                        view_of<lynx::MutableTensorView>(*targets[i]), lynx::OnDevice{});
    if (!receiver.wait_decoded(deadline) || !sender.wait_written(deadline))
        throw std::runtime_error("the end of the transfer over " + provider + " did not come in time");
    result.milliseconds = std::chrono::duration<double, std::milli>(lynx::Clock::now() - begin).count();

    for (std::size_t i = 0; i < targets.size(); ++i) {
        const std::vector<std::byte> got = targets[i]->download();
        const std::vector<std::byte> wanted = exact ? values[i] : expected(*sources[i], spec);
        result.compared += got.size();
        for (std::size_t at = 0; at < got.size(); ++at) result.differing += got[at] != wanted[at] ? 1 : 0;
    }
    return result;
}

}  // namespace

std::vector<Transfer> check_transfers() {
    std::vector<std::string> providers;
    bool tcp = false;
    for (const lynx::ProviderInfo& p : lynx::list_providers()) {
        const bool is_tcp = p.name == "net" || p.name == "tcp";
        if (p.usable && (p.name == "shm" || (is_tcp && !tcp))) providers.push_back(p.name);
        tcp = tcp || (p.usable && is_tcp);
    }
    std::vector<Transfer> all;
    for (const std::string& provider : providers)
        for (const MemoryKind memory : {MemoryKind::kPinned, MemoryKind::kCuda}) {
            try {
                all.push_back(transfer(provider, memory));
            } catch (const std::exception& e) {
                all.push_back(
                    {.provider = provider, .memory = std::string(name_of(memory)), .path = "failed", .why = e.what()});
            }
        }
    return all;
}

}  // namespace gpu_check
