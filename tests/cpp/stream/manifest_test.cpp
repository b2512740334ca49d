#include "lynx/manifest.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "lynx/error.hpp"
#include "manifest_generated.h"
#include "stream/cache.hpp"
#include "stream/flatbuffer.hpp"

namespace lynx {
namespace {

Manifest example() {
    return TestCache(3, 2, 5, 16).manifest(9);
}

template <class Change>
void expect_invalid(Change change, const std::string& field) {
    Manifest m = example();
    change(m);
    try {
        (void)m.serialize();
        FAIL() << field;
    } catch (const InvalidArgument& e) {
        EXPECT_NE(std::string(e.what()).find(field), std::string::npos) << e.what();
    }
}

TEST(Manifest, ComesBackAsItWasSent) {
    Manifest m = example();
    m.tensors[1].spec.anchor_bits = 3;
    m.tensors[1].spec.sink_tokens = 4;
    EXPECT_EQ(Manifest::parse(m.serialize()), m);
}

TEST(Manifest, NamesTheFieldThatIsOutOfRange) {
    expect_invalid([](Manifest& m) { m.parts = 0; }, "parts");
    expect_invalid([](Manifest& m) { m.parts = 4; }, "parts");
    expect_invalid([](Manifest& m) { m.chunk_bytes = 1; }, "chunk_bytes");
    expect_invalid([](Manifest& m) { m.tensors.clear(); }, "tensors");
    expect_invalid([](Manifest& m) { m.tensors.push_back(m.tensors[0]); }, "layer");
    expect_invalid([](Manifest& m) { m.tensors[1].spec.head_dim = 7; }, "head_dim");
    expect_invalid([](Manifest& m) { m.tensors[1].spec.sink_tokens = 1025; }, "sink_tokens");
    expect_invalid([](Manifest& m) { m.tensors[1].spec.dtype = DType::kBF16, m.tensors[1].spec.exact = true; },
                   "parts");
    expect_invalid([](Manifest& m) { m.tensors[1].first_token = kMaxTokens; }, "first_token");
    expect_invalid([](Manifest& m) { m.tensors[1].first_head = kMaxHeads; }, "first_head");
    expect_invalid([](Manifest& m) { m.tensors[1].role = static_cast<TensorRole>(2); }, "role");
    expect_invalid([](Manifest& m) { m.model.assign(5000, 'x'); }, "model");
}

TEST(Manifest, RefusesATotalBeyondAnyMachineWithoutWrappingAround) {
    expect_invalid(
        [](Manifest& m) {
            for (auto& t : m.tensors)
                t.spec.heads = kMaxHeads, t.spec.tokens = kMaxTokens, t.spec.head_dim = kMaxHeadDim;
        },
        "total size");
}

TEST(Manifest, OfAnotherVersionIsRefusedNamingBoth) {
    flatbuffers::FlatBufferBuilder b;
    std::vector<flatbuffers::Offset<wire::Tensor>> none;
    b.Finish(wire::CreateManifest(b, 77, 1, b.CreateString("m"), 0, 0, 2, 4096, b.CreateVector(none), true));
    try {
        (void)Manifest::parse(bytes_of(b));
        FAIL();
    } catch (const ProtocolError& e) {
        EXPECT_NE(std::string(e.what()).find("version 77"), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find("version " + std::to_string(kManifestVersion)), std::string::npos);
    }
}

TEST(Manifest, CutShortAnywhereIsAProtocolError) {
    const auto whole = example().serialize();
    for (std::size_t n = 0; n < whole.size(); ++n)
        EXPECT_THROW((void)Manifest::parse(ConstByteSpan(whole).first(n)), ProtocolError) << n;
}

TEST(Manifest, WithDamagedBytesIsReadOrRefusedButNeverWorse) {
    const auto whole = example().serialize();
    std::mt19937 random(3);
    int refused = 0;
    for (int i = 0; i < 20'000; ++i) {
        auto damaged = whole;
        for (unsigned n = 1 + random() % 4; n > 0; --n)
            damaged[random() % damaged.size()] = static_cast<std::byte>(random());
        try {
            Manifest::parse(damaged).validate();
        } catch (const ProtocolError&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 5000);
}

// Layer 0's K in pieces of (first_token, tokens, first_head, heads).
Manifest in_pieces(const std::vector<std::array<std::uint32_t, 4>>& pieces) {
    Manifest m{.request_id = 1, .model = "test", .chunk_bytes = kMinChunkBytes, .tensors = {}};
    for (const auto& [first_token, tokens, first_head, heads] : pieces)
        m.tensors.push_back(
            {0, TensorRole::kKey, {.heads = heads, .tokens = tokens, .head_dim = 64}, first_token, first_head});
    return m;
}

TEST(Manifest, TakesATensorInRowsOfPieces) {
    EXPECT_NO_THROW(in_pieces({{0, 5, 0, 2}, {5, 7, 0, 2}}).validate()) << "chunks of tokens";
    EXPECT_NO_THROW(in_pieces({{0, 5, 2, 2}, {0, 5, 0, 2}}).validate()) << "shards of heads, in any order";
    EXPECT_NO_THROW(in_pieces({{0, 5, 0, 2}, {0, 5, 2, 1}, {5, 7, 0, 1}, {5, 7, 1, 2}}).validate()) << "both, unequal";
    EXPECT_NO_THROW(in_pieces({{3, 5, 4, 2}, {8, 1, 4, 2}}).validate()) << "a part of a layer that others complete";
    const Manifest m = in_pieces({{3, 5, 4, 2}, {8, 1, 4, 2}});
    EXPECT_EQ(Manifest::parse(m.serialize()), m);
}

TEST(Manifest, RefusesPiecesThatDoNotFitTogether) {
    for (const auto& pieces : std::vector<std::vector<std::array<std::uint32_t, 4>>>{
             {{0, 5, 0, 2}, {6, 5, 0, 2}},   // a gap of tokens
             {{0, 5, 0, 2}, {4, 5, 0, 2}},   // overlapping tokens
             {{0, 5, 0, 2}, {0, 5, 1, 2}},   // overlapping heads
             {{0, 5, 0, 2}, {0, 5, 3, 1}},   // a gap of heads
             {{0, 5, 0, 2}, {0, 4, 2, 1}},   // neighbours of unequal length
             {{0, 5, 0, 2}, {5, 5, 0, 3}},   // rows of unequal width
             {{0, 5, 0, 2}, {5, 5, 1, 1}},   // rows that begin elsewhere
             {{0, 5, 0, 2}, {0, 5, 0, 2}}})  // twice
        EXPECT_THROW(in_pieces(pieces).validate(), InvalidArgument);
}

TEST(Grant, ComesBackAsItWasSent) {
    const Grant back = Grant::parse(Grant{3, 9, 5, 1000, {{1u << 20, 77, 4096}, {1, 2, 3}}}.serialize());
    EXPECT_EQ(back.request_id, 3u);
    EXPECT_EQ(back.slot, 9u);
    EXPECT_EQ(back.seed, 5u);
    EXPECT_EQ(back.bytes_per_second, 1000u);
    ASSERT_EQ(back.regions.size(), 2u);
    EXPECT_EQ(back.regions[0].address, 1u << 20);
    EXPECT_EQ(back.regions[0].key, 77u);
    EXPECT_EQ(back.regions[0].bytes, 4096u);
    EXPECT_EQ(back.regions[1].key, 2u);
}

TEST(Grant, OverNoRailIsRefused) {
    EXPECT_THROW((void)Grant::parse(Grant{3, 9, 5, 0, {}}.serialize()), ProtocolError);
}

}  // namespace
}  // namespace lynx
