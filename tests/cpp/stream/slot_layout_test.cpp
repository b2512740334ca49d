#include "lynx/slot_layout.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "lynx/error.hpp"
#include "stream/cache.hpp"

namespace lynx {
namespace {

Manifest with_exact(Manifest m) {
    m.parts = 3;
    for (ManifestTensor& t : m.tensors) t.spec.dtype = DType::kBF16, t.spec.exact = true;
    return m;
}

TEST(SlotLayout, GivesEveryByteOfEveryPartToOneChunk) {
    Manifest m = with_exact(TestCache(3, 2, 500, 64).manifest(1));
    m.tensors[2].spec.anchor_bits = 8;  // its residual is empty
    m.tensors[3].spec.sink_tokens = 4;
    m.tensors[4].spec.exact = false;
    for (const bool checksums : {true, false}) {
        m.checksums = checksums;
        const SlotLayout layout(m);
        std::vector<bool> seen(layout.bytes());
        std::array<std::uint64_t, kMaxParts> bytes{};
        std::uint32_t next = 0;
        for (std::uint32_t t = 0; t < layout.tensors(); ++t)
            for (unsigned p = 0; p < layout.parts(); ++p) {
                const auto range = layout.chunks(t, p);
                EXPECT_EQ(range.begin, next) << "numbers follow each other";
                next = range.end;
                for (std::uint32_t n = range.begin; n < range.end; ++n) {
                    const SlotLayout::Chunk chunk = layout.chunk(n);
                    EXPECT_EQ(chunk.tensor, t);
                    EXPECT_EQ(chunk.part, p);
                    ASSERT_LE(chunk.extent.end(), layout.bytes());
                    EXPECT_GT(chunk.extent.bytes, 0u);
                    EXPECT_LE(chunk.extent.bytes,
                              m.chunk_bytes + (n == layout.first_chunk(t) ? layout.head(t).bytes : 0));
                    for (std::size_t i = chunk.extent.offset; i < chunk.extent.end(); ++i) {
                        EXPECT_FALSE(seen[i]) << "byte " << i << " twice";
                        seen[i] = true;
                    }
                    bytes.at(p) += chunk.extent.bytes;
                }
            }
        EXPECT_EQ(next, layout.chunks());
        for (unsigned p = 0; p < layout.parts(); ++p) EXPECT_EQ(bytes.at(p), layout.part_bytes(p));
        EXPECT_EQ(layout.chunks(2, 1).count(), 0u);
        EXPECT_EQ(layout.chunks(4, 2).count(), 0u);
    }
}

TEST(SlotLayout, CutsAnExactTierWhereItEnds) {
    const SlotLayout layout(with_exact(TestCache(1, 2, 500, 64).manifest(1)));
    const std::uint32_t most = layout.chunks(0, layout.exact_part()).count();
    EXPECT_EQ(layout.exact_chunks(0, 1).count(), 1u);
    EXPECT_EQ(layout.exact_chunks(0, 4097).count(), 2u);
    EXPECT_EQ(layout.exact_extent(0, 4097).bytes, 4160u);
    EXPECT_EQ(layout.exact_chunks(0, layout.part(0, layout.exact_part()).bytes).count(), most);
    EXPECT_EQ(layout.exact_extent(0, layout.part(0, layout.exact_part()).bytes), layout.part(0, layout.exact_part()));
}

TEST(SlotLayout, TrimsTheLastChunkOfAnExactTierWhoseSizeIsKnown) {
    const Manifest manifest = with_exact(TestCache(1, 2, 500, 64).manifest(1));
    SlotLayout layout(manifest);
    const std::uint32_t first = layout.chunks(0, layout.exact_part()).begin;
    EXPECT_EQ(layout.chunk(first + 1).extent.bytes, manifest.chunk_bytes) << "the most that it may take";
    layout.trim_exact(0, manifest.chunk_bytes + 65);
    EXPECT_EQ(layout.chunk(first).extent.bytes, manifest.chunk_bytes);
    EXPECT_EQ(layout.chunk(first + 1).extent.bytes, 128u);
    EXPECT_EQ(layout.chunk(first + 2).extent.bytes, 0u);
    EXPECT_EQ(layout.chunk(layout.chunks(1, layout.exact_part()).begin + 1).extent.bytes, manifest.chunk_bytes);
    EXPECT_EQ(layout.exact_extent(0, ~std::uint64_t{0}), layout.part(0, layout.exact_part()));
}

TEST(SlotLayout, FindsPiecesInWhateverOrderTheyAreSent) {
    Manifest m = TestCache(3, 2, 5, 16).manifest(9);
    std::swap(m.tensors[0], m.tensors[5]);
    m.tensors.push_back(m.tensors[0]);
    m.tensors.back().first_token = 5;
    std::swap(m.tensors[0], m.tensors[6]);
    const SlotLayout layout(m);
    const auto at = [&](std::uint32_t layer, TensorRole role) {
        const auto found = layout.pieces(layer, role);
        return std::vector<std::uint32_t>(found.begin(), found.end());
    };
    EXPECT_EQ(at(0, TensorRole::kKey), std::vector<std::uint32_t>{5});
    EXPECT_EQ(at(2, TensorRole::kValue), (std::vector<std::uint32_t>{6, 0})) << "by tokens";
    EXPECT_TRUE(at(3, TensorRole::kKey).empty());
}

TEST(SlotLayout, RefusesMoreChunksThanCanBeNumbered) {
    Manifest m = TestCache(1, 1, 1, 64).manifest(1);
    for (ManifestTensor& t : m.tensors) t.spec.tokens = kMaxTokens, t.spec.heads = 4;
    EXPECT_THROW(SlotLayout{m}, InvalidArgument);
    m.chunk_bytes = 1u << 20;
    EXPECT_NO_THROW(SlotLayout{m});
}

}  // namespace
}  // namespace lynx
