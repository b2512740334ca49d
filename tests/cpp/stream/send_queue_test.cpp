#include "stream/send_queue.hpp"

#include <gtest/gtest.h>

#include "lynx/error.hpp"
#include "stream/cache.hpp"

namespace lynx {
namespace {

// Transfers of one node to two peers, with chunks put in the queue by hand and no provider behind it.
class Queue : public testing::Test {
   protected:
    std::shared_ptr<PlaneSender::State> transfer(PeerId peer, unsigned first_part) {
        const Manifest manifest = TestCache(1, 1, 64, 64).manifest(peer);
        auto state = std::make_shared<PlaneSender::State>(*node_.impl(), peer, manifest, Grant{}, SenderOptions{});
        state->tensors_put = state->layout.tensors();
        for (unsigned p = first_part; p < 2; ++p)
            for (std::uint32_t t = 0; t < 2; ++t) state->pending.at(p).push_back({t, p, state->layout.chunk(t, p, 0)});
        queue_.add(state);
        return state;
    }

    // The peer and part of the next write, or {0, 0}.
    std::pair<PeerId, std::uint32_t> next() {
        auto retry_at = Clock::time_point::max();
        const Write* write = queue_.next_write(Clock::now(), retry_at);
        return write != nullptr ? std::pair{write->peer, write->tag & 0xF} : std::pair{PeerId{0}, 0u};
    }

    std::pair<PeerId, std::uint32_t> post() {
        const auto what = next();
        queue_.on_posted();
        return what;
    }

    Node node_{{.fabric = {}, .arena_bytes = 1u << 20, .endpoint = {}}};
    SendQueue queue_;
};

TEST_F(Queue, SendsAnyAnchorBeforeAnyResidual) {
    const auto first = transfer(1, 1), second = transfer(2, 0);  // of the first only the residual is left
    EXPECT_EQ(post(), std::pair(PeerId{2}, 0u));
    EXPECT_EQ(post(), std::pair(PeerId{2}, 0u));
    EXPECT_EQ(post(), std::pair(PeerId{1}, 1u));
}

TEST_F(Queue, APeerThatTakesNothingHoldsUpNobodyElse) {
    const auto stuck = transfer(1, 0), living = transfer(2, 0);
    EXPECT_EQ(next().first, 1u);
    EXPECT_TRUE(queue_.on_refused());
    for (int i = 0; i < 4; ++i) EXPECT_EQ(post().first, 2u);
    EXPECT_EQ(next().first, 0u) << "the round is over";
    EXPECT_EQ(next().first, 1u) << "and in the next one the refused write comes first";
    queue_.on_posted();
    EXPECT_EQ(stuck->chunks_posted, 1u);
}

TEST_F(Queue, ARefusedWriteOfATransferThatHasEndedIsNeverOfferedAgain) {
    const auto ended = transfer(1, 0), living = transfer(2, 0);
    EXPECT_EQ(next().first, 1u);
    EXPECT_TRUE(queue_.on_refused());
    EXPECT_EQ(post().first, 2u);
    ended->fail(std::make_exception_ptr(Cancelled("test")));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(post().first, 2u);
    EXPECT_EQ(next().first, 0u);
    EXPECT_EQ(next().first, 0u);
    EXPECT_EQ(ended->wait_drained(Deadline::after(std::chrono::seconds(0))), 0u);
}

TEST_F(Queue, AStoppedTransferPostsNothingMore) {
    const auto state = transfer(1, 0);
    auto retry_at = Clock::time_point::max();
    const auto part = state->candidate(Clock::now(), retry_at);
    ASSERT_TRUE(part);
    state->stop();
    state->pending[0].push_back({0, 0, state->layout.chunk(0, 0, 0)});  // a put() that was under way
    EXPECT_FALSE(state->take(*part));
    EXPECT_EQ(next().first, 0u);
}

}  // namespace
}  // namespace lynx
