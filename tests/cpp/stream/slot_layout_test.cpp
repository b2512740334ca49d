#include "lynx/slot_layout.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "stream/cache.hpp"

namespace lynx {
namespace {

TEST(SlotLayout, GivesEveryByteOfEveryPartToOneChunk) {
    Manifest m = TestCache(3, 2, 500, 64).manifest(1);
    m.tensors[2].spec.anchor_bits = 8;  // its residual is empty
    m.tensors[3].spec.sink_tokens = 4;
    const SlotLayout layout(m);
    std::vector<bool> seen(layout.bytes());
    std::uint64_t chunks = 0, bytes = 0;
    for (std::uint32_t t = 0; t < layout.tensors(); ++t)
        for (unsigned p = 0; p < layout.parts(); ++p)
            for (std::uint32_t c = 0; c < layout.chunks(t, p); ++c) {
                const Extent e = layout.chunk(t, p, c);
                ASSERT_LE(e.end(), layout.bytes());
                EXPECT_GT(e.bytes, 0u);
                EXPECT_LE(e.bytes, m.chunk_bytes);
                for (std::size_t i = e.offset; i < e.end(); ++i) {
                    EXPECT_FALSE(seen[i]) << "byte " << i << " twice";
                    seen[i] = true;
                }
                ++chunks;
                bytes += e.bytes;
            }
    EXPECT_EQ(chunks, layout.total_chunks());
    std::uint64_t coded = 0;
    for (std::uint32_t t = 0; t < layout.tensors(); ++t) coded += layout.tensor(t).bytes();
    EXPECT_EQ(bytes, coded);
    EXPECT_EQ(layout.part_bytes(0) + layout.part_bytes(1), coded);
    EXPECT_EQ(layout.chunks(2, 1), 0u);
}

TEST(SlotLayout, FindsTensorsInWhateverOrderTheyAreSent) {
    Manifest m = TestCache(3, 2, 5, 16).manifest(9);
    std::swap(m.tensors[0], m.tensors[5]);
    const SlotLayout layout(m);
    EXPECT_EQ(layout.find(0, TensorRole::kKey), 5u);
    EXPECT_EQ(layout.find(2, TensorRole::kValue), 0u);
    EXPECT_EQ(layout.find(3, TensorRole::kKey), std::nullopt);
}

}  // namespace
}  // namespace lynx
