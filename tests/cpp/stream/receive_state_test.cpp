// What a receiver makes of chunks that come late, twice, damaged or not at all. They are carried here by hand, from one
// node's memory into another's.
#include "stream/receive_state.hpp"

#include <gtest/gtest.h>

#include "lynx/error.hpp"
#include "stream/cache.hpp"
#include "stream/send_state.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

class Received : public testing::Test {
   protected:
    Received() {
        sender_.state()->stop();  // it codes, and sends nothing by itself
        cache_.put_all(sender_);
    }

    static Node node() { return Node({.arena_bytes = 4u << 20}); }

    [[nodiscard]] const SlotLayout& layout() const { return receiver_.state()->layout; }

    void copy(std::uint32_t chunk) {
        const Extent e = layout().chunk(chunk).extent;
        const ByteSpan from = sender_.state()->memory(), to = receiver_.state()->memory();
        std::copy_n(from.begin() + e.offset, e.bytes, to.begin() + e.offset);
    }
    void damage(std::uint32_t chunk) {
        const Extent e = layout().chunk(chunk).extent;
        receiver_.state()->memory()[e.offset + e.bytes / 2] ^= std::byte{4};
    }
    void arrive(std::uint32_t chunk) { receiver_.state()->on_arrival(chunk); }
    void deliver(std::uint32_t chunk) {
        copy(chunk);
        arrive(chunk);
    }
    [[nodiscard]] std::vector<ChunkRun> missing(Clock::duration later = 0s) {
        return receiver_.state()->take_missing(Clock::now() + later).runs;
    }

    TestCache cache_{2, 1, 500, 64};  // several chunks a part
    Node prefill_ = node(), decode_ = node();
    PeerId peer_ = prefill_.add_peer(decode_.address());
    PlaneReceiver receiver_{decode_, cache_.manifest(1)};
    PlaneSender sender_{prefill_, peer_, cache_.manifest(1), receiver_.grant()};
};

TEST_F(Received, IsPublishedOnceEveryChunkIsInInWhateverOrder) {
    for (std::uint32_t n = layout().chunks(); n-- > 1;) deliver(n);
    EXPECT_FALSE(receiver_.ready(0, 0)) << "the first chunk, with the checksums of the others, is still to come";
    EXPECT_EQ(receiver_.tier(), std::nullopt);
    deliver(0);
    EXPECT_TRUE(receiver_.complete());
    EXPECT_EQ(receiver_.tier(), 1u);
    EXPECT_LT(cache_.error_of(receiver_, 1), 0.05F);
    EXPECT_EQ(receiver_.revision().arrived_bytes, receiver_.revision().part_bytes);
}

TEST_F(Received, CountsNoChunkTwice) {
    for (int i = 0; i < 100; ++i) deliver(0);
    EXPECT_FALSE(receiver_.ready(0, 0));
    EXPECT_EQ(receiver_.revision().arrived_bytes[0], layout().chunk(0).extent.bytes);
}

TEST_F(Received, ADamagedChunkIsNotPublishedAndAskedForAgain) {
    for (std::uint32_t n = 0; n < layout().chunks(); ++n) {
        copy(n);
        if (n == 2 || n == 0) damage(n);
        arrive(n);
    }
    EXPECT_FALSE(receiver_.ready(0, 0));
    EXPECT_TRUE(receiver_.ready(1, 1)) << "the other layer is whole";
    EXPECT_EQ(missing(), (std::vector<ChunkRun>{{0, 1}})) << "the others of its tensor cannot be checked yet";
    deliver(0);
    EXPECT_EQ(missing(), (std::vector<ChunkRun>{{2, 1}}));
    EXPECT_TRUE(missing().empty()) << "asked for once";
    deliver(2);
    EXPECT_TRUE(receiver_.complete());
    EXPECT_LT(cache_.error_of(receiver_, 1), 0.05F);
}

TEST_F(Received, WhatAnotherTransferLeftInTheMemoryIsNotTaken) {
    const PlaneReceiver other(decode_, cache_.manifest(2));
    PlaneSender to_other(prefill_, peer_, cache_.manifest(2), other.grant());
    to_other.state()->stop();
    cache_.put_all(to_other);
    const ByteSpan from = to_other.state()->memory();
    std::copy(from.begin(), from.end(), receiver_.state()->memory().begin());  // the same cache, under another grant
    for (std::uint32_t n = 0; n < layout().chunks(); ++n) arrive(n);
    EXPECT_EQ(receiver_.revision().arrived_bytes[0], 0u);
}

TEST_F(Received, AsksForWhatIsMissingOnceTheSenderHasSentIt) {
    const auto anchor = layout().chunks(1, 0);
    for (std::uint32_t n = 0; n < layout().chunks(); ++n)
        if (layout().chunk(n).part == 0 && n != anchor.begin && n != anchor.begin + 1) deliver(n);
    EXPECT_TRUE(missing(1h).empty()) << "the sender has not said that it has sent them";
    receiver_.state()->on_sent({1, 0});
    EXPECT_TRUE(missing().empty()) << "they may be on their way";
    EXPECT_EQ(missing(1s), (std::vector<ChunkRun>{{anchor.begin, 2}}));
    EXPECT_TRUE(missing(1h).empty()) << "now it is the sender's turn";
}

TEST_F(Received, WhatTheSenderSaidBeforeItWasAskedCountsForNothing) {
    copy(0);
    damage(0);
    arrive(0);
    EXPECT_EQ(missing(), (std::vector<ChunkRun>{{0, 1}}));
    receiver_.state()->on_sent({2, 0});
    EXPECT_TRUE(missing(1h).empty());
    receiver_.state()->on_sent({2, 1});
    EXPECT_FALSE(missing(1h).empty());
}

TEST_F(Received, AChunkThatNeverComesWholeEndsTheTransferAndKeepsTheRest) {
    for (std::uint32_t n = 0; n < layout().chunks(); ++n)
        if (layout().chunk(n).part == 0) deliver(n);
    int rounds = 0;
    while (true) {
        receiver_.state()->on_sent({2, static_cast<std::uint32_t>(rounds)});
        if (missing(1s).empty()) break;
        ++rounds;
    }
    EXPECT_EQ(rounds, 8);
    EXPECT_THROW((void)receiver_.wait(1, Deadline::after(0s)), CorruptData);
    EXPECT_EQ(receiver_.tier(), 0u);
    EXPECT_TRUE(receiver_.wait(0, Deadline::after(0s))) << "what is complete stays readable";
}

TEST_F(Received, DamageOverWhatWasCheckedEndsTheTransfer) {
    deliver(0);
    deliver(1);
    damage(1);
    arrive(1);
    EXPECT_THROW((void)receiver_.wait(0, Deadline::after(0s)), CorruptData);
}

TEST_F(Received, ATagOfNoChunkIsAStrangersAndEndsNothing) {
    arrive(layout().chunks());
    arrive(0x1F'FFFF);
    EXPECT_EQ(decode_.metrics().stray_writes, 2u);
    for (std::uint32_t n = 0; n < layout().chunks(); ++n) deliver(n);
    EXPECT_TRUE(receiver_.wait(1, Deadline::after(0s)));
}

TEST_F(Received, TagsOfChunksThatHaveNotComePublishNothingAndEndNothing) {
    for (std::uint32_t n = 0; n < layout().chunks(); ++n) arrive(n);
    for (std::uint32_t n = 0; n < layout().chunks(); ++n) deliver(n);
    for (std::uint32_t n = 0; n < layout().chunks(); ++n) arrive(n);
    EXPECT_TRUE(receiver_.wait(1, Deadline::after(0s)));
    EXPECT_TRUE(missing().empty());
    EXPECT_LT(cache_.error_of(receiver_, 1), 0.05F);
}

TEST_F(Received, APartThatIsNotSentIsNotWaitedFor) {
    EXPECT_THROW((void)receiver_.wait(2, Deadline::after(1h)), InvalidArgument);
    EXPECT_THROW((void)receiver_.wait(0, 2, Deadline::after(1h)), InvalidArgument);
}

TEST(ReceivedOfManyChunks, AreAskedForInMessagesOfABoundedSize) {
    const Node node({.arena_bytes = 1u << 30});  // of which nothing is touched
    Manifest manifest = TestCache(1, 1, 8, 64).manifest(1);
    for (ManifestTensor& tensor : manifest.tensors) tensor.spec.tokens = 4u << 20;
    manifest.context_tokens = 4u << 20;
    manifest.chunk_bytes = kMinChunkBytes;
    const PlaneReceiver receiver(node, manifest);
    PlaneReceiver::State& state = *receiver.state();
    const std::uint32_t chunks = state.layout.chunks();
    for (std::uint32_t n = 0; n < chunks; n += 2) state.chunks[n] = PlaneReceiver::State::Chunk::kGood;
    state.on_sent({2, 0});
    std::uint32_t asked = 0;
    for (std::uint32_t round = 1; asked < chunks / 2; ++round) {
        const Missing missing = state.take_missing(Clock::now() + 1s);
        ASSERT_FALSE(missing.runs.empty()) << asked << " of " << chunks / 2;
        EXPECT_LE(missing.runs.size() * sizeof(ChunkRun), 256u << 10);
        EXPECT_EQ(missing.runs.front().first, 2 * asked + 1) << "each once";
        EXPECT_EQ(missing.round, round);
        asked += static_cast<std::uint32_t>(missing.runs.size());
    }
    EXPECT_GT(chunks / 2 * sizeof(ChunkRun), 256u << 10) << "else this shows nothing";
}

TEST_F(Received, AGrantAnewOpensTheSameSlotByOtherKeys) {
    deliver(0);
    const Grant before = receiver_.grant();
    const Grant after = receiver_.state()->grant_anew();
    EXPECT_EQ(after.slot, before.slot);
    EXPECT_EQ(after.seed, before.seed);
    EXPECT_NE(after.regions[0].key, before.regions[0].key);
    EXPECT_EQ(receiver_.state()->arrived()[0], 1);
    EXPECT_EQ(receiver_.state()->arrived()[1], 0);
}

TEST(ReceivedWithoutChecksums, IsCountedAlone) {
    Node prefill({.arena_bytes = 4u << 20}), decode({.arena_bytes = 4u << 20});
    Manifest manifest = TestCache(1, 1, 500, 64).manifest(1);
    manifest.checksums = false;
    PlaneReceiver receiver(decode, manifest);
    for (std::uint32_t n = 0; n < SlotLayout(manifest).chunks(); ++n) receiver.state()->on_arrival(n);
    EXPECT_TRUE(receiver.complete());
}

}  // namespace
}  // namespace lynx
