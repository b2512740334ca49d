// When a peer is taken for lost, and when it is not.
#include <gtest/gtest.h>

#include <thread>

#include "fabric/control_frame.hpp"
#include "fabric/socket.hpp"
#include "stream/cache.hpp"
#include "stream/peer_stranger.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

PeerOptions quick() {
    PeerOptions options;
    options.heartbeat_interval = 50ms;
    options.lost_after = 500ms;
    return options;
}

TEST(PeerHeartbeat, ThatStopsIsToldWithTheNameOfThePeerAndHowLongItWasSilent) {
    Node node(small());
    Stranger stranger(node, quick());
    const auto begin = Clock::now();
    std::string words;
    try {
        (void)stranger.peer->receive_message(soon());
    } catch (const PeerLost& e) {
        words = e.what();
    }
    EXPECT_GE(Clock::now() - begin, 300ms);
    EXPECT_LT(Clock::now() - begin, 3s);
    EXPECT_NE(words.find(stranger.peer->name()), std::string::npos) << words;
    EXPECT_NE(words.find("0.5 s"), std::string::npos) << words;
    EXPECT_TRUE(stranger.peer->lost());
}

TEST(PeerHeartbeat, IsSentWhereNothingElseIs) {
    Node node(small());
    PeerOptions options = patient();
    options.heartbeat_interval = 20ms;
    Stranger stranger(node, options);
    for (int i = 0; i < 5; ++i) {
        const auto message = stranger.channel.receive(soon());
        ASSERT_TRUE(message);
        EXPECT_EQ(message->type, static_cast<std::uint8_t>(MessageType::kHeartbeat));
    }
}

TEST(PeerHeartbeat, IsWhateverAPeerSends) {
    Node node(small());
    Stranger stranger(node, quick());
    for (int i = 0; i < 15; ++i) {
        send(stranger.channel, MessageType::kPiece, std::vector<std::byte>(1));
        std::this_thread::sleep_for(50ms);
    }
    EXPECT_FALSE(stranger.peer->lost());
}

TEST(PeerHeartbeat, ThatStopsInTheMiddleOfAFrameIsALostPeerToo) {
    Node node(small());
    Listener listener(node, "127.0.0.1", 0, {}, quick());
    const auto addresses = fabric::resolve("connect to", "127.0.0.1", listener.port(), false);
    const fabric::Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(socket.get(), addresses->ai_addr, addresses->ai_addrlen), 0);
    const auto say = [&](MessageType type, ConstByteSpan payload, std::size_t claimed) {
        const auto header = fabric::FrameHeader{.type = static_cast<std::uint8_t>(type),
                                                .payload_bytes = static_cast<std::uint32_t>(claimed)}
                                .pack();
        ASSERT_EQ(::send(socket.get(), header.data(), header.size(), 0), static_cast<ssize_t>(header.size()));
        ASSERT_EQ(::send(socket.get(), payload.data(), payload.size(), 0), static_cast<ssize_t>(payload.size()));
    };
    const auto hello = Hello{node.provider(), node.address()}.serialize();
    say(MessageType::kHello, hello, hello.size());
    auto peer = listener.accept(soon());
    ASSERT_TRUE(peer);
    say(MessageType::kUser, std::vector<std::byte>(10), 20);
    const auto begin = Clock::now();
    EXPECT_THROW((void)peer->receive_message(soon()), PeerLost);
    EXPECT_LT(Clock::now() - begin, 3s);
}

TEST(PeerHeartbeat, OfTwoIdlePeersKeepsThemConnected) {
    Node a(small());
    Node b(small());
    Listener listener(a, "127.0.0.1", 0, {}, quick());
    Peer to_a = Peer::connect(b, "127.0.0.1", listener.port(), soon(), {}, quick());
    auto to_b = listener.accept(soon());
    ASSERT_TRUE(to_b);
    std::this_thread::sleep_for(1500ms);
    EXPECT_FALSE(to_a.lost());
    EXPECT_FALSE(to_b->lost());
}

TEST(PeerHeartbeat, LargeMessagesGoInPiecesSoThatOthersNeedNotWait) {
    Node node(small());
    Stranger stranger(node);
    stranger.peer->send_message(std::vector<std::byte>(kMaxMessageBytes, std::byte{7}));
    std::size_t bytes = 0;
    for (;;) {
        const auto message = next_message(stranger.channel);
        ASSERT_TRUE(message);
        EXPECT_LE(message->payload.size(), 16u << 10);
        bytes += message->payload.size();
        if (message->type == static_cast<std::uint8_t>(MessageType::kUser)) break;
        ASSERT_EQ(message->type, static_cast<std::uint8_t>(MessageType::kPiece));
    }
    EXPECT_EQ(bytes, kMaxMessageBytes);
}

TEST(PeerHeartbeat, PiecesThatNeverEndAreNotCollectedForEver) {
    Node node(small());
    Stranger stranger(node);
    // A little more than is collected: the sockets hold what is not read any more.
    for (int i = 0; i < 260; ++i) send(stranger.channel, MessageType::kPiece, std::vector<std::byte>(16u << 10));
    EXPECT_THROW((void)stranger.peer->receive_message(soon()), ProtocolError);
}

TEST(PeerHeartbeat, OptionsThatCannotBeKeptAreRefused) {
    Node node(small());
    Listener listener(node, "127.0.0.1", 0);
    PeerOptions options;
    options.lost_after = 300ms;
    options.heartbeat_interval = 200ms;
    EXPECT_THROW((void)Peer::connect(node, "127.0.0.1", listener.port(), soon(), {}, options), InvalidArgument);
}

}  // namespace
}  // namespace lynx
