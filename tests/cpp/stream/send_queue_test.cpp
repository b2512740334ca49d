#include "stream/send_queue.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "lynx/error.hpp"
#include "stream/arrival_tag.hpp"
#include "stream/cache.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

// Transfers of one node to several peers, with chunks put in the queue by hand and no provider behind it.
class Queue : public testing::Test {
   protected:
    static constexpr PeerId kPeers = 4;

    Queue() {
        for (PeerId peer = 1; peer <= kPeers; ++peer) queue_.add_peer(peer, {{peer, 1u << 20}, {peer + 10, 1u << 20}});
    }

    std::shared_ptr<PlaneSender::State> transfer(PeerId peer, const Priority& priority = {}, std::uint32_t layers = 1) {
        const Manifest manifest = TestCache(layers, 1, 256, 64).manifest(peer);  // a part is 2 or 3 chunks of 4 KiB
        const Grant grant{peer, static_cast<std::uint32_t>(peer), 0, 0, {{0, 0, 1u << 20}, {0, 1, 1u << 20}}};
        auto state = std::make_shared<PlaneSender::State>(*node_.impl(), peer, manifest, grant,
                                                          SenderOptions{.priority = priority});
        queue_.add(state);
        return state;
    }

    std::shared_ptr<PlaneSender::State> put(PeerId peer, const Priority& priority = {}, std::uint32_t layers = 1) {
        auto state = transfer(peer, priority, layers);
        for (std::uint32_t t = 0; t < state->layout.tensors(); ++t) state->on_put(t, 0, 0);
        return state;
    }

    const Write* next(std::size_t rail = 0, Clock::duration later = 0s) {
        auto retry_at = Clock::time_point::max();
        return queue_.next_write(rail, now_ + later, retry_at);
    }

    // The peer and part of the write that was posted, or {0, 0}. It counts as written at once.
    std::pair<PeerId, unsigned> post(std::size_t rail = 0) {
        const Write* write = next(rail);
        if (write == nullptr) return {0, 0};
        const std::uint64_t cookie = write->cookie;
        const ArrivalTag tag = ArrivalTag::unpack(write->tag);
        queue_.on_posted(rail);
        queue_.on_written(rail, cookie);
        const SlotLayout layout(TestCache(8, 1, 256, 64).manifest(1));
        return {tag.slot, layout.chunk(tag.chunk).part};
    }

    Node node_{{.more_rails = {FabricOptions{}}, .arena_bytes = 4u << 20}};
    SendQueue queue_{2, 0.0};
    const Clock::time_point now_ = Clock::now();  // all along: time passes only where a test says so
};

TEST_F(Queue, SendsAnyAnchorBeforeAnyResidual) {
    const auto first = put(1);
    while (post().second == 0) {
    }  // its anchors are gone, and one chunk of its residual
    const auto second = put(2);
    const std::size_t anchors = second->pending[0].size();
    for (std::size_t i = 0; i < anchors; ++i) EXPECT_EQ(post(), std::pair(PeerId{2}, 0u));
    EXPECT_EQ(post().second, 1u);
}

TEST_F(Queue, SendsAResidualWhileTheNextAnchorIsNotThereYet) {
    const auto state = transfer(1, {}, 2);
    state->on_put(0, 0, 0);
    std::vector<unsigned> parts;
    for (std::size_t i = 0, n = state->layout.chunks(0, 0).count() + 1; i < n; ++i) parts.push_back(post().second);
    EXPECT_EQ(parts.back(), 1u);
    state->on_put(1, 0, 0);
    EXPECT_EQ(post().second, 0u) << "an anchor that comes now goes first";
}

TEST_F(Queue, SendsTheAnchorOfTheEarlierDeadlineFirst) {
    const auto late = put(1, {.deadline = Clock::now() + 2s}), soon = put(2, {.deadline = Clock::now() + 1s});
    EXPECT_EQ(post().first, 2u);
    late->priority.deadline = Clock::now();
    EXPECT_EQ(post().first, 1u) << "changed while it runs";
}

TEST_F(Queue, SendsLowerLayersOfAnyRequestFirst) {
    const auto one = put(1, {}, 2), two = put(2, {}, 2);
    const std::size_t of_layer_0 = one->layout.chunks(0, 0).count() + one->layout.chunks(1, 0).count();
    std::size_t ones = 0;
    for (std::size_t i = 0; i < 2 * of_layer_0; ++i) ones += post().first == 1 ? 1 : 0;
    EXPECT_EQ(ones, of_layer_0);
}

TEST_F(Queue, SharesAClassByWeight) {
    Priority heavy{.weight = 3};
    heavy.classes[0] = SendClass::kResidual;
    Priority light{.weight = 1};
    light.classes[0] = SendClass::kResidual;
    const auto one = put(1, heavy, 8), two = put(2, light, 8);
    int ones = 0;
    for (int i = 0; i < 40; ++i) ones += post().first == 1 ? 1 : 0;
    EXPECT_NEAR(ones, 30, 2);
}

TEST_F(Queue, ATransferThatComesLaterDoesNotCatchUpOnWhatItMissed) {
    const auto old = put(1, {}, 8);
    while (post().second == 0) {
    }
    for (int i = 0; i < 8; ++i) (void)post();
    Priority residual;
    residual.classes[0] = SendClass::kResidual;
    const auto late = put(2, residual, 8);
    int late_ones = 0;
    for (int i = 0; i < 10; ++i) late_ones += post().first == 2 ? 1 : 0;
    EXPECT_NEAR(late_ones, 5, 1);
}

TEST_F(Queue, ATransferThatWasIdleDoesNotCatchUpOnWhatItMissed) {
    Priority residual;
    residual.classes[0] = SendClass::kResidual;
    const auto idle = transfer(1, residual, 8);  // its cache is still being computed
    const auto busy = put(2, residual, 8);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(post().first, 2u);
    for (std::uint32_t t = 0; t < 4; ++t) idle->on_put(t, 0, 0);
    int idle_ones = 0;
    for (int i = 0; i < 10; ++i) idle_ones += post().first == 1 ? 1 : 0;
    EXPECT_NEAR(idle_ones, 5, 1);
}

TEST_F(Queue, LowerClassesKeepTheirShare) {
    SendQueue queue(1, 0.25);
    for (PeerId peer = 1; peer <= 2; ++peer) queue.add_peer(peer, {{peer, 1u << 20}});
    Priority residual;
    residual.classes[0] = SendClass::kResidual;
    const auto low = put(1, residual, 8), high = put(2, {}, 8);
    queue.add(low);
    queue.add(high);
    int lows = 0;
    for (int i = 0; i < 30; ++i) {
        auto retry_at = Clock::time_point::max();
        const Write* write = queue.next_write(0, Clock::now(), retry_at);
        ASSERT_NE(write, nullptr);
        lows += write->peer == 1 ? 1 : 0;
        const std::uint64_t cookie = write->cookie;
        queue.on_posted(0);
        queue.on_written(0, cookie);
    }
    EXPECT_NEAR(lows, 6, 2) << "one for each four of the others";
}

TEST_F(Queue, LowerClassesKeepTheirShareWhereTheWindowIsFullAllTheTime) {
    SendQueue queue(1, 0.25);
    queue.add_peer(1, {{1, 10'000}});
    Priority residual;
    residual.classes[0] = SendClass::kResidual;
    const auto low = put(1, residual, 8), high = put(1, {}, 8);
    queue.add(low);
    queue.add(high);
    std::deque<std::uint64_t> on_their_way;
    for (int i = 0; i < 30; ++i) {
        auto retry_at = Clock::time_point::max();
        while (const Write* write = queue.next_write(0, Clock::now(), retry_at)) {
            on_their_way.push_back(write->cookie);
            queue.on_posted(0);
        }
        ASSERT_FALSE(on_their_way.empty());
        queue.on_written(0, on_their_way.front());
        on_their_way.pop_front();
    }
    EXPECT_NEAR(static_cast<double>(low->chunks_posted), 6, 2) << "one for each four of the others";
}

TEST_F(Queue, KeepsNoMoreOnItsWayThanTheWindow) {
    SendQueue queue(1, 0.0);
    queue.add_peer(1, {{1, 10'000}});
    const auto state = put(1, {}, 8);
    queue.add(state);
    auto retry_at = Clock::time_point::max();
    std::uint64_t bytes = 0;
    std::uint64_t first = 0;
    while (const Write* write = queue.next_write(0, Clock::now(), retry_at)) {
        first = first == 0 ? write->cookie : first;
        bytes += write->source.size();
        queue.on_posted(0);
    }
    EXPECT_LE(bytes, 10'000u);
    EXPECT_GT(bytes, 4'000u);
    queue.on_written(0, first);
    EXPECT_NE(queue.next_write(0, Clock::now(), retry_at), nullptr);
}

TEST_F(Queue, APeerThatTakesNothingHoldsUpNobodyElse) {
    const auto stuck = put(1), living = put(2);
    EXPECT_EQ(next()->peer, 1u);
    EXPECT_TRUE(queue_.on_refused(0));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(post().first, 2u);
    while (post().first == 2) {
    }
    EXPECT_EQ(stuck->chunks_posted, 0u);
    EXPECT_EQ(post().first, 1u) << "once the others had their turn";
}

TEST_F(Queue, ARefusedWriteIsOfferedAgainSoonThoughOthersAlwaysHaveSomething) {
    const auto stuck = put(1), busy = put(2, {}, 8);
    EXPECT_EQ(next()->peer, 1u);
    EXPECT_TRUE(queue_.on_refused(0));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(post().first, 2u);
    const Write* again = next(0, 1s);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->peer, 1u);
    EXPECT_TRUE(queue_.on_refused(0));
    EXPECT_EQ(post().first, 2u) << "and the others go on in between";
}

TEST_F(Queue, ARefusedWriteOfATransferThatHasEndedIsNeverOfferedAgain) {
    const auto ended = put(1);
    EXPECT_EQ(next()->peer, 1u);
    EXPECT_TRUE(queue_.on_refused(0));
    ended->fail(std::make_exception_ptr(Cancelled("test")));
    EXPECT_EQ(next(), nullptr);
    EXPECT_EQ(next(), nullptr);
    EXPECT_EQ(ended->wait_drained(Deadline::after(0s)), 0u);
}

TEST_F(Queue, AStoppedTransferPostsNothingMore) {
    const auto state = transfer(1);
    state->stop();
    state->on_put(0, 0, 0);  // a put() that was under way
    EXPECT_EQ(next(), nullptr);
}

TEST_F(Queue, WhatADeadRailHadToDoGoesOverTheOther) {
    const auto state = put(1);
    const std::size_t all = state->pending[0].size() + state->pending[1].size();
    const std::uint64_t lost = next(0)->cookie;
    queue_.on_posted(0);
    queue_.on_write_failed(0, lost, std::make_exception_ptr(PeerLost("the rail")));
    EXPECT_EQ(next(0), nullptr) << "the rail is dead";
    EXPECT_EQ(queue_.live_rails(1), 1u);
    EXPECT_EQ(queue_.live_rails(), 2 * kPeers - 1);
    for (std::size_t i = 0; i < all; ++i) EXPECT_EQ(post(1).first, 1u);
    EXPECT_FALSE(state->has_ended());
    EXPECT_TRUE(state->all_written());
    EXPECT_GT(state->progress.resent_bytes, 0u);
    (void)queue_.remove_peer(1);
    EXPECT_EQ(queue_.live_rails(), 2 * kPeers - 2);
}

TEST_F(Queue, ATransferWhoseLastRailDiesEndsWithTheReason) {
    const auto state = put(1);
    for (std::size_t rail = 0; rail < 2; ++rail) {
        const std::uint64_t lost = next(rail)->cookie;
        queue_.on_posted(rail);
        queue_.on_write_failed(rail, lost, std::make_exception_ptr(PeerLost("the rail")));
    }
    EXPECT_TRUE(state->has_ended());
    EXPECT_THROW(std::rethrow_exception(state->error), PeerLost);
}

TEST_F(Queue, RemovingAPeerEndsItsTransfers) {
    const auto gone = put(1), other = put(2);
    EXPECT_EQ(queue_.remove_peer(1), (std::vector<PeerId>{1, 11}));
    EXPECT_TRUE(gone->has_ended());
    EXPECT_FALSE(other->has_ended());
    EXPECT_FALSE(queue_.knows(1));
}

TEST_F(Queue, SendsAgainWhatTheReceiverMisses) {
    const auto state = put(1);
    while (post().first != 0) {
    }
    EXPECT_EQ(state->take_sent(), (Written{2, 0}));
    EXPECT_EQ(state->take_sent(), std::nullopt) << "told once";
    EXPECT_TRUE(state->resend({{{1, 2}}, 5}));
    EXPECT_FALSE(state->all_written());
    EXPECT_EQ(post().first, 1u);
    EXPECT_EQ(post().first, 1u);
    EXPECT_EQ(post().first, 0u);
    EXPECT_EQ(state->take_sent(), (Written{2, 5})) << "and told anew";
    EXPECT_FALSE(state->resend({{{100'000, 1}}, 6}));
    EXPECT_FALSE(state->resend({{{1, 2}, {2, 1}}, 6})) << "one twice";
}

TEST_F(Queue, AResumableTransferOutlivesItsRailAndGoesOnUnderANewGrant) {
    const auto state = put(1);
    state->set_resumable(true);
    (void)post();  // chunk 0 is written
    const std::uint64_t lost = next(0)->cookie;
    queue_.on_posted(0);
    queue_.remove_peer(2);
    queue_.on_write_failed(0, lost, std::make_exception_ptr(PeerLost("the rail")));
    const std::uint64_t second = next(1)->cookie;
    queue_.on_posted(1);
    queue_.on_write_failed(1, second, std::make_exception_ptr(PeerLost("the rail")));
    EXPECT_EQ(next(0), nullptr) << "suspended";
    EXPECT_EQ(state->error, nullptr);
    Grant grant = state->grant;
    grant.slot = 3;
    std::vector<std::uint8_t> arrived(state->layout.chunks());
    EXPECT_THROW(state->resume(grant, std::vector<std::uint8_t>(1)), ProtocolError);
    arrived[1] = 1;
    EXPECT_EQ(queue_.live_rails(1), 0u);
    queue_.revive(1);
    queue_.revive(2);
    EXPECT_EQ(queue_.live_rails(1), 2u);
    EXPECT_EQ(queue_.live_rails(), 2 * kPeers - 2) << "a removed peer's are gone";
    state->resume(grant, arrived);
    const std::size_t left = state->layout.chunks() - 1;
    std::size_t posted = 0;
    while (post().first == 3) ++posted;
    EXPECT_EQ(posted, left) << "all but the chunk that has arrived";
    EXPECT_TRUE(state->all_written());
    EXPECT_EQ(state->progress.written_bytes[0], state->progress.part_bytes[0]);
    EXPECT_EQ(state->progress.written_bytes[1], state->progress.part_bytes[1]);
}

}  // namespace
}  // namespace lynx
