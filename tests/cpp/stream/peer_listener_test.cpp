// Who comes to a listener, and who has to wait for whom.
#include <gtest/gtest.h>

#include <thread>

#include "stream/peer_stranger.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

TEST(Listener, IsNotHeldUpByStrangersThatSayNothing) {
    Node node(small());
    Node other(small());
    Listener listener(node, "127.0.0.1", 0);
    std::vector<ControlChannel> silent;
    for (int i = 0; i < 3; ++i) silent.push_back(ControlChannel::connect("127.0.0.1", listener.port(), soon()));
    const auto begin = Clock::now();
    const Peer peer = Peer::connect(other, "127.0.0.1", listener.port(), soon());
    EXPECT_TRUE(listener.accept(soon()));
    EXPECT_LT(Clock::now() - begin, 2s);
}

TEST(Listener, DropsTheOldestOfTooManyStrangersThatSayNothing) {
    Node node(small());
    Node other(small());
    Listener listener(node, "127.0.0.1", 0);
    std::vector<ControlChannel> silent;
    for (int i = 0; i < 40; ++i) silent.push_back(ControlChannel::connect("127.0.0.1", listener.port(), soon()));
    const auto begin = Clock::now();
    const Peer peer = Peer::connect(other, "127.0.0.1", listener.port(), soon());
    EXPECT_LT(Clock::now() - begin, 3s);
    std::optional<Peer> accepted;
    int dropped = 0;
    while (!accepted) try {
            accepted = listener.accept(soon());
            ASSERT_TRUE(accepted);
        } catch (const PeerLost&) {
            ++dropped;
        }
    EXPECT_LE(dropped, 16) << "of a flood of strangers not all are told";
}

TEST(Listener, GreetsThoseWhoComeWhileNobodyAccepts) {
    Node node(small());
    Node other(small());
    Listener listener(node, "127.0.0.1", 0);
    const Peer first = Peer::connect(other, "127.0.0.1", listener.port(), soon());
    const Peer second = Peer::connect(other, "127.0.0.1", listener.port(), soon());
    EXPECT_TRUE(listener.accept(soon()));
    EXPECT_TRUE(listener.accept(soon()));
    EXPECT_FALSE(listener.accept(Deadline::after(10ms)));
}

TEST(Listener, ThatIsClosedClosesWhoWasNotAccepted) {
    Node node(small());
    Node other(small());
    std::optional<Listener> listener(std::in_place, node, "127.0.0.1", 0);
    Peer peer = Peer::connect(other, "127.0.0.1", listener->port(), soon());
    const auto silent = ControlChannel::connect("127.0.0.1", listener->port(), soon());
    const auto begin = Clock::now();
    listener.reset();
    EXPECT_LT(Clock::now() - begin, 3s);
    EXPECT_THROW((void)peer.receive_message(soon()), PeerLost);
}

}  // namespace
}  // namespace lynx
