// Tensors of a device over each provider, with a fake device whose memory the host cannot touch: staged through pinned
// memory, and direct.
#include <gtest/gtest.h>

#include <bit>
#include <future>
#include <thread>

#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "stream/cache.hpp"
#include "stream/device_fabric.hpp"
#include "stream/fake_device.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<std::uint16_t>;  // of bf16

constexpr std::uint32_t kLayers = 3, kHeads = 2, kTokens = 300, kHeadDim = 64;

Deadline soon() {
    return Deadline::after(10s);
}

std::vector<std::string> providers() {
    std::vector<std::string> names;
    for (const ProviderInfo& p : list_providers())
        if (p.usable && p.name != "sockets" && p.name != "tcp;ofi_rxm") names.push_back(p.name);
    return names;
}

template <class View, class Data>
View view_of(Data* data, std::uint32_t tokens = kTokens) {
    const std::array<std::int64_t, 3> shape{kHeads, tokens, kHeadDim};
    return {data, DType::kBF16, shape, contiguous_strides(shape)};
}

bool becomes_free(const Node& node) {
    for (int i = 0; i < 500 && node.arena_free_bytes() != node.arena_bytes(); ++i) std::this_thread::sleep_for(10ms);
    return node.arena_free_bytes() == node.arena_bytes();
}

/// A cache of bf16 on one device, its place on another, and two nodes between them that carry their blobs themselves.
struct Devices {
    Devices(const std::string& provider, MemoryKind kind, bool card = false) {
        const auto node = [&](const std::shared_ptr<FakeDevice>& device) {
            FabricOptions fabric{provider, "127.0.0.1"};
            if (card) fabric.backend = std::make_shared<DeviceFabric>(fabric, device->machine);
            return Node({.fabric = fabric, .arena_bytes = 8u << 20, .memory = kind, .device = device});
        };
        prefill.emplace(node(source));
        decode.emplace(node(target));
        peer = prefill->add_peer(decode->address());
        TestCache cache(kLayers, kHeads, kTokens, kHeadDim);
        for (const auto& tensor : cache.tensors) {
            Values& values = tensors.emplace_back();
            for (const float x : tensor)
                values.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
            on_source.push_back(source->upload(values));
            on_target.push_back(target->upload(Values(values.size())));
        }
    }

    [[nodiscard]] static Manifest manifest(std::uint8_t parts) {
        Manifest m = TestCache(kLayers, kHeads, kTokens, kHeadDim).manifest(1, Coding::kPlanes, parts);
        for (ManifestTensor& t : m.tensors) t.spec.dtype = DType::kBF16, t.spec.exact = parts > m.exact_part();
        return m;
    }

    void put(PlaneSender& sender, std::size_t index, void* stream = nullptr) {
        sender.put(static_cast<std::uint32_t>(index / 2), kRoles[index % 2],
                   view_of<TensorView>(on_source[index]->span().data()), OnDevice{stream});
    }
    void fetch(const PlaneReceiver& receiver, std::size_t index, unsigned part, void* stream = nullptr) {
        receiver.decode(static_cast<std::uint32_t>(index / 2), kRoles[index % 2], part,
                        view_of<MutableTensorView>(on_target[index]->span().data()), OnDevice{stream});
    }
    /// What the CPU's codec makes of that tensor through `part`.
    [[nodiscard]] Values expected(std::size_t index, unsigned part) const {
        if (part == manifest(3).exact_part()) return tensors[index];
        const PlaneLayout layout({.dtype = DType::kBF16, .heads = kHeads, .tokens = kTokens, .head_dim = kHeadDim});
        std::vector<std::byte> coded(layout.bytes());
        Values out(tensors[index].size());
        const auto* bytes = reinterpret_cast<const std::byte*>(tensors[index].data());
        (void)Codec::best().encode(view_of<TensorView>(bytes), layout, coded);
        Codec::best().decode(layout, coded, part == 0 ? 4 : 8,
                             view_of<MutableTensorView>(reinterpret_cast<std::byte*>(out.data())));
        return out;
    }

    const std::shared_ptr<FakeDevice> source = std::make_shared<FakeDevice>();
    const std::shared_ptr<FakeDevice> target = std::make_shared<FakeDevice>();
    std::optional<Node> prefill, decode;
    PeerId peer = 0;
    std::vector<Values> tensors;
    std::vector<std::unique_ptr<DeviceMemory>> on_source, on_target;
};

class DeviceTensors : public testing::TestWithParam<std::string> {};

TEST_P(DeviceTensors, GoStagedThroughPinnedMemoryBitForBit) {
    Devices d(GetParam(), MemoryKind::kPinned);
    EXPECT_EQ(d.prefill->device_path(), DevicePath::kStaged);
    EXPECT_NE(d.prefill->why_not_direct().find("pinned"), std::string::npos) << d.prefill->why_not_direct();
    {
        PlaneReceiver receiver(*d.decode, Devices::manifest(3));
        PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
        for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
        for (const unsigned part : {0u, 1u, 2u}) {
            ASSERT_TRUE(receiver.wait(part, soon()));
            for (std::size_t i = 0; i < d.tensors.size(); ++i) d.fetch(receiver, i, part);
            ASSERT_TRUE(receiver.wait_decoded(soon()));
            for (std::size_t i = 0; i < d.tensors.size(); ++i)
                EXPECT_EQ(d.target->download<std::uint16_t>(*d.on_target[i]), d.expected(i, part)) << i << " " << part;
        }
        ASSERT_TRUE(sender.wait_written(soon()));
        EXPECT_EQ(sender.progress().written_bytes, sender.progress().part_bytes);
    }
    EXPECT_TRUE(becomes_free(*d.prefill));
    EXPECT_TRUE(becomes_free(*d.decode));
}

TEST_P(DeviceTensors, AreCodedWhileTheOneBeforeIsCopied) {
    Devices d(GetParam(), MemoryKind::kPinned);
    // Each copy waits for the kernel of the tensor behind it: without an overlap none would come.
    const auto wait_for_next_kernel = [](FakeMachine& machine) {
        machine.before_copy = [&machine](int number) {
            if (number + 1 < static_cast<int>(2 * kLayers))
                (void)machine.log.wait_for("kernel " + std::to_string(number + 1) + " begins", 5s);
        };
    };
    wait_for_next_kernel(*d.source->machine);
    PlaneReceiver receiver(*d.decode, Devices::manifest(2));
    PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
    for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
    ASSERT_TRUE(receiver.wait(1, soon()));
    // On the way back a kernel follows its copy, and is overlapped by the copy of the tensor behind it.
    std::promise<void> second_copy;
    d.target->machine->before_copy = [&](int number) {
        if (number == 1) second_copy.set_value();
    };
    FakeStream caller(d.target->machine);
    caller.put([&] { (void)second_copy.get_future().wait_for(5s); });  // holds the first kernel back
    for (std::size_t i = 0; i < d.tensors.size(); ++i) d.fetch(receiver, i, 1, &caller);
    ASSERT_TRUE(receiver.wait_decoded(soon()));
    const FakeLog& log = d.source->machine->log;
    for (int i = 0; i + 1 < static_cast<int>(2 * kLayers); ++i)
        EXPECT_LT(log.place_of("kernel " + std::to_string(i + 1) + " begins"),
                  log.place_of("copy " + std::to_string(i) + " ends"));
    EXPECT_LT(d.target->machine->log.place_of("copy 1 begins"), d.target->machine->log.place_of("kernel 0 ends"));
    for (std::size_t i = 0; i < d.tensors.size(); ++i)
        EXPECT_EQ(d.target->download<std::uint16_t>(*d.on_target[i]), d.expected(i, 1));
}

TEST_P(DeviceTensors, AreReadAndWrittenInTheOrderOfTheCallersStream) {
    Devices d(GetParam(), MemoryKind::kPinned);
    PlaneReceiver receiver(*d.decode, Devices::manifest(1));
    PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
    FakeStream prefilling(d.source->machine), decoding(d.target->machine);
    const auto inside = [](const FakeDevice& device, const DeviceMemory& memory) {
        return device.machine->memory.inside(MemoryKind::kCuda, memory.span().data());
    };
    for (std::size_t i = 0; i < d.tensors.size(); ++i) {
        std::byte* tensor = inside(*d.source, *d.on_source[i]);
        const std::size_t bytes = d.on_source[i]->span().size();
        std::memset(tensor, 0, bytes);
        prefilling.put([=, &d] {
            std::this_thread::sleep_for(20ms);
            std::memcpy(tensor, d.tensors[i].data(), bytes);
        });
        d.put(sender, i, &prefilling);
        prefilling.put([=] { std::memset(tensor, 0xFF, bytes); });  // the memory is somebody else's from here on
    }
    ASSERT_TRUE(receiver.wait(0, soon()));
    std::vector<Values> seen(d.tensors.size(), Values(d.tensors[0].size()));
    for (std::size_t i = 0; i < d.tensors.size(); ++i) {
        std::byte* tensor = inside(*d.target, *d.on_target[i]);
        const std::size_t bytes = d.on_target[i]->span().size();
        decoding.put([=] {
            std::this_thread::sleep_for(20ms);
            std::memset(tensor, 0xFF, bytes);  // the last use of what was there
        });
        d.fetch(receiver, i, 0, &decoding);
        decoding.put([=, &seen] { std::memcpy(seen[i].data(), tensor, bytes); });
    }
    (void)decoding.wait();
    for (std::size_t i = 0; i < d.tensors.size(); ++i) EXPECT_EQ(seen[i], d.expected(i, 0)) << i;
}

TEST_P(DeviceTensors, EndTheTransferWhenTheDeviceFails) {
    for (const bool in_kernel : {true, false}) {
        Devices d(GetParam(), MemoryKind::kPinned);
        const std::size_t blocks = d.source->machine->memory.blocks();
        (in_kernel ? d.source->machine->failing_kernel : d.source->machine->failing_copy) = 1;
        {
            PlaneReceiver receiver(*d.decode, Devices::manifest(2));
            PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
            const auto put_all = [&] {
                for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
                (void)sender.wait_written(soon());
            };
            EXPECT_THROW(put_all(), CudaError);
            EXPECT_THROW((void)sender.wait_written(soon()), CudaError);
            EXPECT_TRUE(sender.failed());
            const auto posted = sender.wait_drained(soon());
            ASSERT_TRUE(posted);
            EXPECT_TRUE(receiver.settle(*posted, soon()));
        }
        EXPECT_TRUE(becomes_free(*d.prefill));
        EXPECT_TRUE(becomes_free(*d.decode));
        // The device's own next request works.
        PlaneReceiver receiver(*d.decode, Devices::manifest(2));
        PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
        for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
        EXPECT_TRUE(receiver.wait(1, soon()));
        EXPECT_LE(d.source->machine->memory.blocks(), blocks + 2) << "but for the two staging buffers";
        d.prefill.reset();
    }
}

TEST_P(DeviceTensors, SayWhatFailedWhileTheyWereDecoded) {
    Devices d(GetParam(), MemoryKind::kPinned);
    d.target->machine->failing_kernel = 1;
    {
        PlaneReceiver receiver(*d.decode, Devices::manifest(2));
        PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
        for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
        ASSERT_TRUE(receiver.wait(1, soon()));
        for (std::size_t i = 0; i < d.tensors.size(); ++i) d.fetch(receiver, i, 1);
        EXPECT_THROW((void)receiver.wait_decoded(soon()), CudaError);
        EXPECT_TRUE(receiver.wait_decoded(soon())) << "told once";
        d.fetch(receiver, 1, 1);
        EXPECT_TRUE(receiver.wait_decoded(soon())) << "what is complete stays readable";
        EXPECT_EQ(d.target->download<std::uint16_t>(*d.on_target[1]), d.expected(1, 1));
    }
    EXPECT_TRUE(becomes_free(*d.decode));
}

TEST_P(DeviceTensors, LeaveTheSlotOnlyOnceTheDeviceHasLetGoOfIt) {
    Devices d(GetParam(), MemoryKind::kPinned);
    std::promise<void> go_on;
    const auto gate = go_on.get_future().share();
    d.source->machine->before_copy = [&](int) { (void)gate.wait_for(10s); };
    {
        PlaneReceiver receiver(*d.decode, Devices::manifest(2));
        PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
        d.put(sender, 0);
        d.put(sender, 1);
        // Cancelled in the middle: as Peer::cancel does it.
        sender.fail(std::make_exception_ptr(Cancelled("not wanted any more")));
        EXPECT_EQ(sender.wait_drained(soon()), 0u);
        EXPECT_TRUE(receiver.settle(0, soon()));
        EXPECT_THROW(d.put(sender, 2), Cancelled);
    }
    EXPECT_TRUE(becomes_free(*d.decode));
    EXPECT_LT(d.prefill->arena_free_bytes(), d.prefill->arena_bytes()) << "two copies into it are still under way";
    go_on.set_value();
    EXPECT_TRUE(becomes_free(*d.prefill));
}

TEST_P(DeviceTensors, GoWithTheNodeThatEndsWhileTheDeviceIsAtWork) {
    Devices d(GetParam(), MemoryKind::kPinned);
    d.source->machine->before_copy = [](int) { std::this_thread::sleep_for(50ms); };
    {
        PlaneReceiver receiver(*d.decode, Devices::manifest(2));
        PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
        d.put(sender, 0);
        d.put(sender, 1);
        d.prefill.reset();
    }
    EXPECT_EQ(d.source->machine->streams, 0);
    EXPECT_EQ(d.source->machine->memory.blocks(), d.on_source.size());
}

TEST_P(DeviceTensors, GoDirectWhereTheFabricReachesTheDevice) {
    Devices d(GetParam(), MemoryKind::kCuda, true);
    EXPECT_EQ(d.prefill->device_path(), DevicePath::kDirect);
    EXPECT_EQ(d.prefill->why_not_direct(), "");
    Manifest manifest = Devices::manifest(2);
    manifest.checksums = false;
    {
        PlaneReceiver receiver(*d.decode, manifest);
        PlaneSender sender(*d.prefill, d.peer, manifest, receiver.grant());
        for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
        ASSERT_TRUE(receiver.wait(1, soon()));
        for (std::size_t i = 0; i < d.tensors.size(); ++i) d.fetch(receiver, i, 1);
        ASSERT_TRUE(receiver.wait_decoded(soon()));
        for (std::size_t i = 0; i < d.tensors.size(); ++i)
            EXPECT_EQ(d.target->download<std::uint16_t>(*d.on_target[i]), d.expected(i, 1)) << i;
        EXPECT_GT(d.target->machine->flushes, 0);
        EXPECT_EQ(d.source->machine->copies, 0);
        EXPECT_EQ(d.target->machine->copies, 0);
        ASSERT_TRUE(sender.wait_written(soon()));

        Values host(d.tensors[0].size());
        EXPECT_THROW(receiver.decode(0, TensorRole::kKey, 0,
                                     view_of<MutableTensorView>(reinterpret_cast<std::byte*>(host.data()))),
                     InvalidArgument)
            << "the host cannot read the arena";
    }
    EXPECT_TRUE(becomes_free(*d.prefill));
    EXPECT_TRUE(becomes_free(*d.decode));
    manifest.checksums = true;
    EXPECT_THROW(PlaneReceiver(*d.decode, manifest), Unsupported);
    manifest.checksums = false;
    Manifest exact = Devices::manifest(3);
    exact.checksums = false;
    EXPECT_THROW(PlaneReceiver(*d.decode, exact), Unsupported);
    EXPECT_EQ(d.decode->arena_free_bytes(), d.decode->arena_bytes());
}

TEST_P(DeviceTensors, GoFromADirectNodeToOneOfHostMemory) {
    Devices d(GetParam(), MemoryKind::kCuda, true);
    Node plain({.fabric = {GetParam(), "127.0.0.1"}, .arena_bytes = 8u << 20});
    Manifest manifest = Devices::manifest(2);
    manifest.checksums = false;
    PlaneReceiver receiver(plain, manifest);
    PlaneSender sender(*d.prefill, d.prefill->add_peer(plain.address()), manifest, receiver.grant());
    for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
    ASSERT_TRUE(receiver.wait(1, soon()));
    Values out(d.tensors[0].size());
    receiver.decode(0, TensorRole::kValue, 1, view_of<MutableTensorView>(reinterpret_cast<std::byte*>(out.data())));
    EXPECT_EQ(out, d.expected(1, 1));
}

TEST_P(DeviceTensors, GoStagedWhereTheProviderDoesNotTakeTheDevicesMemory) {
    Devices d(GetParam(), MemoryKind::kCuda);  // no provider of this machine reaches a device that is not there
    EXPECT_EQ(d.prefill->device_path(), DevicePath::kStaged);
    EXPECT_NE(d.prefill->why_not_direct().find(GetParam()), std::string::npos) << d.prefill->why_not_direct();
    PlaneReceiver receiver(*d.decode, Devices::manifest(2));
    PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
    for (std::size_t i = 0; i < d.tensors.size(); ++i) d.put(sender, i);
    ASSERT_TRUE(receiver.wait(1, soon()));
    d.fetch(receiver, 0, 1);
    ASSERT_TRUE(receiver.wait_decoded(soon()));
    EXPECT_EQ(d.target->download<std::uint16_t>(*d.on_target[0]), d.expected(0, 1));
}

TEST_P(DeviceTensors, OfTheWrongKindOrPlaceAreRefused) {
    Devices d(GetParam(), MemoryKind::kPinned);
    PlaneReceiver receiver(*d.decode, Devices::manifest(2));
    PlaneSender sender(*d.prefill, d.peer, receiver.manifest(), receiver.grant());
    const auto* host = reinterpret_cast<const std::byte*>(d.tensors[0].data());
    EXPECT_THROW(sender.put(0, TensorRole::kKey, view_of<TensorView>(host), OnDevice{}), InvalidArgument);
    EXPECT_THROW(
        sender.put(0, TensorRole::kKey, view_of<TensorView>(d.on_source[0]->span().data(), kTokens / 2), OnDevice{}),
        Error)
        << "another shape";
    const Node plain({.fabric = {GetParam(), "127.0.0.1"}, .arena_bytes = 8u << 20});
    EXPECT_EQ(plain.device_path(), DevicePath::kNone);
    EXPECT_NE(plain.why_not_direct(), "");
    const PlaneReceiver on_plain(plain, Devices::manifest(2));
    EXPECT_THROW(d.fetch(on_plain, 0, 0), InvalidArgument) << "a node without a device";
    EXPECT_THROW(Node({.arena_bytes = 4096, .memory = MemoryKind::kPinned}), InvalidArgument) << "no device given";
}

TEST_P(DeviceTensors, AreRegisteredAsWhatTheyAreOrNotAtAll) {
    FakeDevice device;
    const Fabric fabric({GetParam(), "127.0.0.1"});
    Buffer host(4096);
    const auto pinned = device.allocate(MemoryKind::kPinned, 4096);
    const auto memory = device.allocate(MemoryKind::kCuda, 4096);
    const auto as = [&](ByteSpan span, MemoryKind kind) {
        return MemoryRegion(fabric, span, MemoryAccess::kLocal, {kind, &device});
    };
    EXPECT_NO_THROW(as(host.span(), MemoryKind::kHost));
    EXPECT_NO_THROW(as(pinned->span(), MemoryKind::kPinned));
    EXPECT_THROW(as(host.span(), MemoryKind::kCuda), InvalidArgument);
    EXPECT_THROW(as(memory->span(), MemoryKind::kHost), InvalidArgument);
    EXPECT_THROW(as(memory->span(), MemoryKind::kPinned), InvalidArgument);
    EXPECT_THROW(as(memory->span(), MemoryKind::kCuda), FabricError) << "no provider here reaches this device";
    EXPECT_THROW(MemoryRegion(fabric, host.span(), MemoryAccess::kLocal, {MemoryKind::kCuda, nullptr}), InvalidArgument)
        << "nobody to ask";
}

INSTANTIATE_TEST_SUITE_P(Providers, DeviceTensors, testing::ValuesIn(providers()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace lynx
