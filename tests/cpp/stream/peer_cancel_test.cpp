// Cancelling against peers that answer late, wrongly, or not at all.
#include <gtest/gtest.h>

#include <thread>

#include "lynx/slot_layout.hpp"
#include "stream/cache.hpp"
#include "stream/peer_stranger.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

struct Cancelling : testing::Test {
    Cancelling() {
        send(stranger.channel, MessageType::kOffer, cache.manifest(1).serialize());
        receiver = stranger.peer->accept_offer(soon());
        EXPECT_TRUE(next_message(stranger.channel));  // the grant
    }
    [[nodiscard]] bool becomes_free() {
        receiver.reset();
        for (int i = 0; i < 500 && node.arena_free_bytes() != node.arena_bytes(); ++i)
            std::this_thread::sleep_for(10ms);
        return node.arena_free_bytes() == node.arena_bytes();
    }

    Node node{small()};
    Stranger stranger{node};
    TestCache cache{1, 1, 8, 64};
    std::optional<PlaneReceiver> receiver;
};

TEST_F(Cancelling, BySomeoneWhoHasPostedNothingFreesTheSlotAtOnce) {
    send(stranger.channel, MessageType::kCancel, Notice{1, "no more", 0}.serialize());
    EXPECT_THROW((void)receiver->wait(0, soon()), Cancelled);
    EXPECT_TRUE(becomes_free());
}

TEST_F(Cancelling, BySomeoneWhoseWritesAreStillUnderWayHoldsUpNothingElse) {
    send(stranger.channel, MessageType::kCancel, Notice{1, "no more", 2}.serialize());
    send(stranger.channel, MessageType::kUser, std::vector<std::byte>(3));
    const auto begin = Clock::now();
    EXPECT_TRUE(stranger.peer->receive_message(soon()));
    EXPECT_LT(Clock::now() - begin, 1s);
    EXPECT_THROW((void)receiver->wait(0, soon()), Cancelled);
    EXPECT_TRUE(becomes_free()) << "once they have landed, or cannot any more";
}

TEST_F(Cancelling, IsOverOnceTheSenderHasAnswered) {
    std::jthread answering([&] {
        const auto cancel = next_message(stranger.channel);
        EXPECT_EQ(cancel->type, static_cast<std::uint8_t>(MessageType::kCancel));
        send(stranger.channel, MessageType::kCancelled, Notice{1, "", 0}.serialize());
    });
    EXPECT_TRUE(stranger.peer->cancel(*receiver, "the user has gone", soon()));
    EXPECT_TRUE(becomes_free());
}

TEST_F(Cancelling, AnsweredAfterItsDeadlineStillFreesTheSlot) {
    EXPECT_FALSE(stranger.peer->cancel(*receiver, "the user has gone", Deadline::after(20ms)));
    receiver.reset();
    std::this_thread::sleep_for(50ms);
    EXPECT_LT(node.arena_free_bytes(), node.arena_bytes());
    send(stranger.channel, MessageType::kCancelled, Notice{1, "", 0}.serialize());
    EXPECT_TRUE(becomes_free());
}

TEST_F(Cancelling, ByBothAtOnceIsOverWithTheSendersWord) {
    std::jthread answering([&] {
        (void)next_message(stranger.channel);
        send(stranger.channel, MessageType::kCancel, Notice{1, "no more", 0}.serialize());
        send(stranger.channel, MessageType::kCancelled, Notice{1, "", kUnknownChunks}.serialize());
    });
    EXPECT_TRUE(stranger.peer->cancel(*receiver, "the user has gone", soon()));
    EXPECT_TRUE(stranger.peer->cancel(*receiver, "once more", soon()));
    EXPECT_TRUE(becomes_free());
}

TEST_F(Cancelling, AnsweredBySomeoneWhoCannotSayKeepsTheSlotTaken) {
    std::jthread answering([&] {
        (void)next_message(stranger.channel);
        send(stranger.channel, MessageType::kCancelled, Notice{1, "", kUnknownChunks}.serialize());
    });
    EXPECT_FALSE(stranger.peer->cancel(*receiver, "the user has gone", soon()));
    receiver.reset();
    std::this_thread::sleep_for(50ms);
    EXPECT_LT(node.arena_free_bytes(), node.arena_bytes());
}

TEST_F(Cancelling, OfALostPeerDoesNotWait) {
    stranger.channel.shutdown();
    EXPECT_THROW((void)stranger.peer->receive_message(soon()), PeerLost);
    const auto begin = Clock::now();
    EXPECT_FALSE(stranger.peer->cancel(*receiver, "the user has gone", soon()));
    EXPECT_LT(Clock::now() - begin, 1s);
}

}  // namespace
}  // namespace lynx
