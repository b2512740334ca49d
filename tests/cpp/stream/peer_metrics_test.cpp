// What a node counts of its connections.
#include <gtest/gtest.h>

#include <thread>

#include "stream/peer_stranger.hpp"
#include "stream/relay.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

template <class Condition>
bool eventually(Condition condition) {
    for (const Deadline deadline = soon(); !deadline.passed(); std::this_thread::sleep_for(1ms))
        if (condition()) return true;
    return condition();
}

TEST(PeerMetrics, CountTheHeartbeatsOfASilentPeerThatWereMissed) {
    Node node(small());
    PeerOptions options;
    options.heartbeat_interval = 50ms;
    options.lost_after = 500ms;
    Stranger stranger(node, options);
    EXPECT_THROW((void)stranger.peer->receive_message(soon()), PeerLost);
    EXPECT_GE(node.metrics().heartbeats_missed, 7u);
    EXPECT_LE(node.metrics().heartbeats_missed, 10u) << "more than the silence had room for";
}

TEST(PeerMetrics, CountConnectionsThatCameBack) {
    Node here(small()), there(small());
    PeerOptions options;
    options.reconnect_for = 20s;
    Listener listener(here, "127.0.0.1", 0, {}, options);
    testing::Relay relay(listener.port());
    Peer to_here = Peer::connect(there, "127.0.0.1", relay.port(), soon(), {}, options);
    auto to_there = listener.accept(soon());
    ASSERT_TRUE(to_there);
    EXPECT_EQ(here.metrics().reconnects + there.metrics().reconnects, 0u);
    relay.cut();
    std::this_thread::sleep_for(50ms);
    relay.mend();
    EXPECT_TRUE(eventually([&] { return here.metrics().reconnects > 0 && there.metrics().reconnects > 0; }));
}

TEST(PeerMetrics, CountStrangersThatDoNotSpeakTheProtocol) {
    Node node(small()), other(small());
    Listener listener(node, "127.0.0.1", 0);
    {
        ControlChannel stranger = ControlChannel::connect("127.0.0.1", listener.port(), soon());
        stranger.send(static_cast<std::uint8_t>(MessageType::kUser), {}, soon());
        EXPECT_THROW((void)listener.accept(soon()), ProtocolError);
    }
    EXPECT_EQ(node.metrics().failed_handshakes, 1u);
    const Peer peer = Peer::connect(other, "127.0.0.1", listener.port(), soon());
    EXPECT_TRUE(listener.accept(soon()));
    EXPECT_EQ(node.metrics().failed_handshakes, 1u);
}

}  // namespace
}  // namespace lynx
