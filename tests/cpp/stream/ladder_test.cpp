// The plane ladder: a residual in several rungs, each of which is ready and can be decoded by itself.
#include <gtest/gtest.h>

#include <bit>
#include <future>

#include "fabric/providers_for_tests.hpp"
#include "lynx/error.hpp"
#include "lynx/shards.hpp"
#include "stream/cache.hpp"
#include "stream/links.hpp"
#include "stream/receive_state.hpp"
#include "stream/send_state.hpp"

namespace lynx::testing {
namespace {

constexpr std::uint8_t kRungs = 4;

using Bits = std::vector<std::uint16_t>;

TensorView source_of(const Bits& bits, const TensorSpec& spec) {
    const std::int64_t h = spec.heads, t = spec.tokens, d = spec.head_dim;
    return {reinterpret_cast<const std::byte*>(bits.data()), spec.dtype, {h, t, d}, {t * d, d, 1}};
}

MutableTensorView view_of(Bits& bits, const TensorSpec& spec) {
    const std::int64_t h = spec.heads, t = spec.tokens, d = spec.head_dim;
    return {reinterpret_cast<std::byte*>(bits.data()), spec.dtype, {h, t, d}, {t * d, d, 1}};
}

/// Anchors of 5 and 3 planes, one of 8 and one of 7, and the exact tier behind.
Manifest ladder(const TestCache& cache) {
    Manifest manifest = cache.manifest(1);
    manifest.rungs = kRungs;
    manifest.parts = 2 + kRungs;
    for (ManifestTensor& t : manifest.tensors) {
        t.spec.dtype = DType::kBF16;
        t.spec.exact = true;
        t.spec.sink_tokens = 3;
        t.spec.anchor_bits = t.role == TensorRole::kKey ? 5 : 3;
    }
    manifest.tensors[2].spec.anchor_bits = 8;
    manifest.tensors[3].spec.anchor_bits = 7;
    return manifest;
}

Bits bf16(const std::vector<float>& values) {
    Bits bits;
    for (const float x : values) bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
    return bits;
}

Bits expected(const Bits& source, const TensorSpec& spec, unsigned planes) {
    const PlaneLayout layout(spec);
    std::vector<std::byte> coded(layout.bytes());
    Bits out(source.size());
    (void)Codec::best().encode(source_of(source, spec), layout, coded);
    Codec::best().decode(layout, coded, planes, view_of(out, spec));
    return out;
}

class Ladder : public EachProvider {};

TEST_P(Ladder, IsDecodedAtEachRungFromOnePlaneMoreAndThenBitForBit) {
    Node prefill = node_of(GetParam()), decode = node_of(GetParam());
    Link link = connect(prefill, decode);
    TestCache cache(3, 2, 300, 64);
    const Manifest manifest = ladder(cache);
    auto [sender, receiver] = open(link, manifest);
    std::vector<Bits> sources;
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
        const ManifestTensor& t = manifest.tensors[i];
        sources.push_back(bf16(cache.tensors[i]));
        sender.put(t.layer, t.role, source_of(sources.back(), t.spec));
    }
    for (unsigned part = 0; part < manifest.parts; ++part) {
        ASSERT_TRUE(receiver.wait(part, soon())) << part;
        for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
            const ManifestTensor& t = manifest.tensors[i];
            Bits out(sources[i].size());
            receiver.decode(t.layer, t.role, part, view_of(out, t.spec));
            const unsigned planes = part >= manifest.residual_part() ? 8 : std::min(8u, t.spec.anchor_bits + part);
            EXPECT_EQ(out, part == manifest.exact_part() ? sources[i] : expected(sources[i], t.spec, planes))
                << "tensor " << i << " at part " << part;
        }
    }
    EXPECT_TRUE(receiver.complete());
    EXPECT_EQ(receiver.tier(), manifest.exact_part());
    EXPECT_EQ(receiver.revision().arrived_bytes, receiver.revision().part_bytes);
    link.at_decode->finish(receiver);
    EXPECT_TRUE(link.at_prefill->finish(sender, soon()));
    ASSERT_TRUE(sender.wait_written(soon()));
    EXPECT_EQ(sender.progress().written_bytes, sender.progress().part_bytes);
    const NodeMetrics counted = decode.metrics();
    const auto& arrived = receiver.revision().arrived_bytes;
    EXPECT_EQ(counted.received_bytes[1], arrived[1] + arrived[2] + arrived[3] + arrived[4]) << "by tier";
    for (const Durations& d : counted.part_time) EXPECT_EQ(d.count(), 1u) << "one for each tier";
}

TEST_P(Ladder, OfAnotherNumberOfRungsIsNotPutTogetherWithTheOtherShards) {
    TestCache cache(1, 2, 40, 64);
    const ShardLayout two = ShardLayout::even({{2, 64, DType::kF32}}, 2, 1),
                      one = ShardLayout::even({{2, 64, DType::kF32}}, 1, 1);
    const ShardPlan plan(two, one);
    Manifest whole = cache.manifest(1);
    const Node decode = node_of(GetParam());
    whole.rungs = 3, whole.parts = 4;
    PlaneReceiver first(decode, plan.manifest(whole, 0, 0));
    EXPECT_EQ(first.manifest().rungs, 3u);
    whole.rungs = 2, whole.parts = 3;
    PlaneReceiver other(decode, plan.manifest(whole, 1, 0));
    EXPECT_THROW(ShardedReceiver(plan, 0, {{&first, nullptr}, {&other, nullptr}}), ProtocolError);
}

INSTANTIATE_TEST_SUITE_P(Providers, Ladder, ::testing::ValuesIn(tested_providers()), provider_test_name);

TEST(LadderLayout, CutsTheResidualByPlanesAndGivesARungWithoutOneNoChunk) {
    TestCache cache(3, 2, 300, 64);
    const Manifest manifest = ladder(cache);
    const SlotLayout layout(manifest);
    EXPECT_EQ(layout.parts(), 6u);
    for (std::uint32_t t = 0; t < layout.tensors(); ++t) {
        const PlaneLayout& planes = layout.tensor(t);
        const unsigned bits = planes.spec().anchor_bits;
        for (unsigned p = 1; p <= kRungs; ++p) {
            const Extent e = planes.part(p, kRungs);
            EXPECT_EQ(e.offset, planes.part(p - 1, kRungs).end());
            const unsigned left = bits + p - 1 < 8 ? 8 - (bits + p - 1) : 0;
            EXPECT_EQ(e.bytes, (p == kRungs ? left : std::min(left, 1u)) * planes.plane(0).bytes);
            EXPECT_EQ(layout.chunks(t, p).count() == 0, e.bytes == 0);
        }
        EXPECT_EQ(planes.part(kRungs + 1, kRungs).offset, planes.exact_index().offset);
    }
    EXPECT_EQ(layout.tier(0), 0u);
    EXPECT_EQ(layout.tier(1), 1u);
    EXPECT_EQ(layout.tier(kRungs), 1u);
    EXPECT_EQ(layout.tier(layout.exact_part()), 2u);
}

TEST(LadderLayout, HasAnEmptyRungReadyOnceWhatIsBeforeItIs) {
    const Node node({.arena_bytes = 4u << 20});
    TestCache cache(1, 1, 100, 64);
    Manifest manifest = cache.manifest(1);
    for (ManifestTensor& t : manifest.tensors) t.spec.anchor_bits = 8;
    manifest.rungs = 3, manifest.parts = 4, manifest.checksums = false;
    const PlaneReceiver receiver(node, manifest);
    EXPECT_EQ(receiver.tier(), std::nullopt);
    EXPECT_FALSE(receiver.ready(3));
    for (std::uint32_t n = 0; n < SlotLayout(manifest).chunks(); ++n) receiver.state()->on_arrival(n);
    EXPECT_TRUE(receiver.complete());
    EXPECT_EQ(receiver.tier(), 3u);
}

TEST(LadderManifest, ComesBackAndIsRefusedOutOfRange) {
    Manifest m = TestCache(1, 1, 8, 64).manifest(1);
    m.rungs = 7, m.parts = 8;
    EXPECT_EQ(Manifest::parse(m.serialize()), m);
    const auto refused = [](Manifest bad, const char* field) {
        try {
            bad.validate();
            ADD_FAILURE() << field << " passed";
        } catch (const InvalidArgument& e) {
            EXPECT_NE(std::string(e.what()).find(field), std::string::npos) << e.what();
        }
    };
    for (const int rungs : {0, 8, 255}) m.rungs = static_cast<std::uint8_t>(rungs), refused(m, "rungs");
    m.rungs = 4;
    for (const int parts : {0, 2, 3, 4, 7, 255}) m.parts = static_cast<std::uint8_t>(parts), refused(m, "parts");
    m.parts = 5;
    EXPECT_NO_THROW(m.validate());
    m.tensors[0].spec.coding = Coding::kRaw;
    refused(m, "rungs");
}

}  // namespace
}  // namespace lynx::testing
