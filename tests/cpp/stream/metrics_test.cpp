#include "stream/metrics.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "lynx/error.hpp"
#include "stream/cache.hpp"
#include "stream/receive_state.hpp"
#include "stream/send_state.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

Deadline soon() {
    return Deadline::after(20s);
}

template <class T, std::size_t kCount>
T sum(const std::array<T, kCount>& parts) {
    return std::accumulate(parts.begin(), parts.end(), T{});
}

// `condition` comes true: what the rail's thread counts is there a moment after what the waiter sees.
template <class Condition>
bool eventually(Condition condition) {
    for (const Deadline deadline = soon(); !deadline.passed(); std::this_thread::sleep_for(1ms))
        if (condition()) return true;
    return condition();
}

TEST(Histograms, PutADurationBelowItsBucketsUpperBoundAndNotBelowTheOneBefore) {
    for (const auto d : {0ns, 1ns, 1023ns, 1024ns, 1025ns, std::chrono::nanoseconds(3ms), std::chrono::nanoseconds(68s),
                         std::chrono::nanoseconds(1h), std::chrono::nanoseconds::max()}) {
        Histogram histogram;
        histogram.observe(d);
        const Durations read = histogram.read();
        const auto bucket = static_cast<std::size_t>(std::ranges::find(read.counts, 1u) - read.counts.begin());
        ASSERT_LT(bucket, Durations::kBuckets) << d.count();
        EXPECT_EQ(read.count(), 1u);
        EXPECT_EQ(read.sum, d);
        EXPECT_TRUE(d < Durations::upper_bound(bucket) || bucket + 1 == Durations::kBuckets) << d.count();
        if (bucket > 0) {
            EXPECT_GE(d, Durations::upper_bound(bucket - 1)) << d.count();
        }
    }
}

TEST(Histograms, CountWhatIsBelowZeroAsZero) {
    Histogram histogram;
    histogram.observe(-5s);
    EXPECT_EQ(histogram.read().counts[0], 1u);
    EXPECT_EQ(histogram.read().sum, 0ns);
}

TEST(Counters, LoseNothingAmongThreads) {
    Counter counter;
    Histogram histogram;
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&] {
                for (int i = 0; i < 10'000; ++i) {
                    counter.add(3);
                    histogram.observe(2us);
                }
            });
    }
    EXPECT_EQ(counter.value(), 120'000u);
    EXPECT_EQ(histogram.read().count(), 40'000u);
    EXPECT_EQ(histogram.read().sum, 80ms);
}

class Metrics : public testing::Test {
   protected:
    static Node node() { return Node({.arena_bytes = 16u << 20}); }

    TestCache cache_{2, 2, 500, 64};
    Node prefill_ = node(), decode_ = node();
    PeerId peer_ = prefill_.add_peer(decode_.address());
};

TEST_F(Metrics, OfBothEndsTellTheSameBytesByTier) {
    {
        PlaneReceiver receiver(decode_, cache_.manifest(1, Coding::kPlanes, 2));
        PlaneSender sender(prefill_, peer_, cache_.manifest(1), receiver.grant());
        cache_.put_all(sender);
        ASSERT_TRUE(receiver.wait(1, soon()));
        ASSERT_TRUE(sender.wait_written(soon()));
        const Revision revision = receiver.revision();
        ASSERT_TRUE(eventually([&] { return prefill_.metrics().in_flight_bytes == 0; }));

        const NodeMetrics out = prefill_.metrics(), in = decode_.metrics();
        const std::uint32_t chunks = SlotLayout(receiver.manifest()).chunks();
        for (unsigned p = 0; p < kTiers; ++p) EXPECT_EQ(in.received_bytes.at(p), revision.arrived_bytes.at(p));
        EXPECT_EQ(out.sent_bytes, in.received_bytes);
        EXPECT_EQ(sum(out.sent_chunks), chunks);
        EXPECT_EQ(sum(in.received_chunks), chunks);
        EXPECT_EQ(out.posted_writes, chunks);
        EXPECT_EQ(out.write_latency.count(), chunks);
        for (unsigned c = 0; c < kTiers; ++c) {
            EXPECT_EQ(out.queue_wait.at(c).count(), out.sent_chunks.at(c)) << c;
            EXPECT_EQ(out.lateness.at(c).count(), 0u) << "no deadline is set";
            EXPECT_EQ(in.part_time.at(c).count(), c < 2 ? 1u : 0u);
        }
        EXPECT_EQ(in.received, (Outcomes{.done = 1}));
        EXPECT_EQ(in.slots_taken, 1u);
        EXPECT_GE(in.arena_used_bytes, SlotLayout(receiver.manifest()).bytes());
        EXPECT_EQ(in.arena_bytes, 16u << 20);
        EXPECT_EQ(out.live_rails, 1u);
        EXPECT_EQ(out.failed_writes + out.resent_chunks + in.damaged_chunks + in.duplicate_chunks + in.stray_writes,
                  0u);
    }
    // The rail may still be at the last arrival.
    EXPECT_TRUE(eventually([&] { return decode_.metrics().slots_taken == 0; }));
    EXPECT_EQ(prefill_.metrics().sent, (Outcomes{.done = 1}));
    EXPECT_TRUE(eventually([&] { return prefill_.metrics().arena_used_bytes == 0; }));
    prefill_.remove_peer(peer_);
    EXPECT_EQ(prefill_.metrics().live_rails, 0u);
}

TEST_F(Metrics, TellHowATransferEnded) {
    PlaneReceiver failed(decode_, cache_.manifest(1));
    failed.fail(std::make_exception_ptr(PeerLost("gone")));
    failed.fail(std::make_exception_ptr(Cancelled("only the first cause counts")));
    {
        const PlaneReceiver given_up(decode_, cache_.manifest(2));
    }
    PlaneSender sender(prefill_, peer_, cache_.manifest(1), failed.grant());
    sender.fail(std::make_exception_ptr(Cancelled("enough")));
    EXPECT_EQ(decode_.metrics().received, (Outcomes{.failed = 1, .cancelled = 1}));
    EXPECT_EQ(prefill_.metrics().sent, (Outcomes{.cancelled = 1}));
}

TEST_F(Metrics, ASendThatTheReceiverHasConfirmedIsDoneWhateverComesAfter) {
    const PlaneReceiver receiver(decode_, cache_.manifest(1));
    PlaneSender sender(prefill_, peer_, cache_.manifest(1), receiver.grant());
    sender.state()->on_confirmed();
    sender.fail(std::make_exception_ptr(PeerLost("gone")));
    EXPECT_EQ(prefill_.metrics().sent, (Outcomes{.done = 1}));
}

TEST_F(Metrics, CountDamagedDuplicateAndResentChunks) {
    PlaneReceiver receiver(decode_, cache_.manifest(1));
    PlaneSender sender(prefill_, peer_, cache_.manifest(1), receiver.grant());
    cache_.put_all(sender);
    ASSERT_TRUE(receiver.wait(1, soon()));
    ASSERT_TRUE(sender.wait_written(soon()));
    const std::vector<ChunkRun> again{{1, 2}};
    ASSERT_TRUE(sender.state()->resend({again, 1}));
    ASSERT_TRUE(eventually([&] { return decode_.metrics().duplicate_chunks == 2; }));
    ASSERT_TRUE(sender.wait_written(soon()));
    EXPECT_EQ(prefill_.metrics().resent_chunks, 2u);
    EXPECT_EQ(sum(prefill_.metrics().sent_bytes), sum(decode_.metrics().received_bytes) + 2 * kMinChunkBytes);
    std::uint64_t written = 0, resent = 0;
    for (const PartTimes& part : sender.timeline()) {
        written += part.bytes;
        resent += part.resent;
    }
    EXPECT_EQ(written, sum(receiver.revision().arrived_bytes)) << "each chunk once";
    EXPECT_EQ(resent, 2u);

    PlaneReceiver damaged(decode_, cache_.manifest(2));
    damaged.state()->on_arrival(0);  // nothing was written there
    EXPECT_EQ(decode_.metrics().damaged_chunks, 1u);
    EXPECT_EQ(damaged.state()->take_missing(Clock::now()).runs.size(), 1u);
    EXPECT_EQ(decode_.metrics().asked_chunks, 1u);
}

TEST_F(Metrics, CountAWriteForASlotThatNobodyHolds) {
    PlaneReceiver receiver(decode_, cache_.manifest(1));
    decode_.impl()->slots.remove(receiver.grant().slot);
    PlaneSender sender(prefill_, peer_, cache_.manifest(1), receiver.grant());
    cache_.put_all(sender);
    EXPECT_TRUE(eventually([&] { return decode_.metrics().stray_writes > 0; }));
    receiver.fail(std::make_exception_ptr(Cancelled("its writes find nobody")));
}

TEST_F(Metrics, MeasureLatenessAgainstADeadline) {
    PlaneReceiver receiver(decode_, cache_.manifest(1));
    PlaneSender sender(prefill_, peer_, cache_.manifest(1), receiver.grant(),
                       {.priority = {.deadline = Clock::now() - 10s}});
    cache_.put_all(sender);
    ASSERT_TRUE(sender.wait_written(soon()));
    const NodeMetrics m = prefill_.metrics();
    EXPECT_EQ(m.lateness[0].count(), m.sent_chunks[0]);
    EXPECT_GE(m.lateness[0].sum, 10s * static_cast<int>(m.sent_chunks[0]));
}

TEST_F(Metrics, ATimelineHasEachPartOfEachTensorWithItsTimesInOrder) {
    const auto before = Clock::now();
    PlaneReceiver receiver(decode_, cache_.manifest(1));
    EXPECT_TRUE(receiver.timeline().empty());
    PlaneSender sender(prefill_, peer_, cache_.manifest(1), receiver.grant());
    cache_.put_all(sender);
    ASSERT_TRUE(receiver.wait(1, soon()));
    ASSERT_TRUE(sender.wait_written(soon()));
    const auto after = Clock::now();
    const SlotLayout layout(receiver.manifest());
    for (const auto& timeline : {sender.timeline(), receiver.timeline()}) {
        ASSERT_EQ(timeline.size(), layout.tensors() * 2);
        for (std::size_t i = 0; i < timeline.size(); ++i) {
            const PartTimes& t = timeline[i];
            EXPECT_EQ(t.tensor, i / 2);
            EXPECT_EQ(t.part, i % 2);
            EXPECT_LE(before, t.first);
            EXPECT_LE(t.first, t.last);
            EXPECT_LE(t.last, after);
            EXPECT_EQ(t.bytes, layout.part(t.tensor, t.part).bytes);
            EXPECT_EQ(t.chunks, layout.chunks(t.tensor, t.part).count());
            EXPECT_EQ(t.resent, 0u);
            EXPECT_TRUE(t.complete);
        }
    }
}

TEST_F(Metrics, ATimelineOfAnUnfinishedTransferSaysSo) {
    PlaneReceiver receiver(decode_, cache_.manifest(1));
    const SlotLayout layout(receiver.manifest());
    receiver.state()->on_arrival(layout.chunks(1, 1).begin);  // unchecked before its tensor's first chunk
    const auto timeline = receiver.timeline();
    ASSERT_EQ(timeline.size(), 1u);
    EXPECT_EQ(timeline[0].tensor, 1u);
    EXPECT_EQ(timeline[0].part, 1u);
    EXPECT_FALSE(timeline[0].complete);
    EXPECT_EQ(timeline[0].bytes, 0u);
}

}  // namespace
}  // namespace lynx
