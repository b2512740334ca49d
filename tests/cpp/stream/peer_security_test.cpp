// Peers with a pre-shared key, and strangers.
#include <gtest/gtest.h>

#include <future>

#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "stream/peer_messages.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

Deadline soon() {
    return Deadline::after(10s);
}

NodeOptions small() {
    return {.fabric = {}, .arena_bytes = 1u << 20, .endpoint = {}};
}

PresharedKey key(int number = 1) {
    return PresharedKey::from_bytes(std::vector<std::byte>(PresharedKey::kMinBytes, static_cast<std::byte>(number)));
}

std::future<Peer> connecting(const Node& node, std::uint16_t port, std::optional<PresharedKey> with) {
    return std::async(std::launch::async,
                      [&node, port, with] { return Peer::connect(node, "127.0.0.1", port, soon(), {.key = with}); });
}

void expect_usable(Listener& listener, const Node& node) {
    auto connected = connecting(node, listener.port(), key());
    auto here = listener.accept(soon());
    auto there = connected.get();
    ASSERT_TRUE(here);
    const std::vector<std::byte> hello(5, std::byte{42});
    there.send_message(hello);
    EXPECT_EQ(here->receive_message(soon()), hello);
}

TEST(PeerSecurity, PeersOfOneKeyMeet) {
    const Node node(small());
    Listener listener(node, "127.0.0.1", 0, {.key = key()});
    expect_usable(listener, node);
}

TEST(PeerSecurity, OthersAreRefusedOnBothEndsAndTheNextPeerIsServed) {
    const Node node(small());
    Listener listener(node, "127.0.0.1", 0, {.key = key()});
    for (const std::optional<PresharedKey>& theirs : {std::optional(key(2)), std::optional<PresharedKey>()}) {
        auto connected = connecting(node, listener.port(), theirs);
        EXPECT_THROW((void)listener.accept(soon()), AuthenticationFailed);
        EXPECT_THROW((void)connected.get(), AuthenticationFailed);
    }
    expect_usable(listener, node);
}

TEST(PeerSecurity, APeerWithAKeyAgainstAListenerWithoutOneIsRefusedOnBothEnds) {
    const Node node(small());
    Listener listener(node, "127.0.0.1", 0);
    auto connected = connecting(node, listener.port(), key());
    EXPECT_THROW((void)listener.accept(soon()), AuthenticationFailed);
    EXPECT_THROW((void)connected.get(), AuthenticationFailed);
}

TEST(PeerSecurity, AHelloOfMoreThanAFewBytesIsRefused) {
    const Node node(small());
    Listener listener(node, "127.0.0.1", 0);
    auto stranger = ControlChannel::connect("127.0.0.1", listener.port(), soon());
    stranger.send(static_cast<std::uint8_t>(MessageType::kHello), std::vector<std::byte>(kMaxStrangerPayload + 1),
                  soon());
    EXPECT_THROW((void)listener.accept(soon()), ProtocolError);
}

}  // namespace
}  // namespace lynx
