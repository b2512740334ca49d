// Set-up against peers that do not behave.
#include "lynx/peer.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "lynx/error.hpp"
#include "manifest_generated.h"
#include "stream/cache.hpp"
#include "stream/flatbuffer.hpp"
#include "stream/peer_messages.hpp"
#include "stream/peer_stranger.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

TEST(Peer, OfAnotherProviderIsRefusedNamingBoth) {
    Node node(small());
    const std::string error = error_of([&] { Stranger(node, {"carrier-pigeon", node.address()}); });
    EXPECT_NE(error.find("carrier-pigeon"), std::string::npos) << error;
    EXPECT_NE(error.find(node.provider()), std::string::npos) << error;
}

TEST(Peer, WithAnAddressThatIsNoneIsRefused) {
    Node node(small());
    EXPECT_NE(error_of([&] { Stranger(node, {node.provider(), std::vector<std::byte>(3)}); }), "no error");
}

TEST(Peer, ThatSpeaksFirstOfSomethingElseIsDroppedAndTheListenerGoesOn) {
    Node node(small());
    Listener listener(node, "127.0.0.1", 0);
    auto channel = ControlChannel::connect("127.0.0.1", listener.port(), soon());
    send(channel, MessageType::kDone, {});
    EXPECT_THROW((void)listener.accept(soon()), ProtocolError);

    Node other(small());
    std::optional<Peer> connected;
    std::thread connecting([&] { connected.emplace(Peer::connect(other, "127.0.0.1", listener.port(), soon())); });
    EXPECT_TRUE(listener.accept(soon()).has_value());
    connecting.join();
}

TEST(Peer, OfferingAManifestOfAnotherVersionHearsWhy) {
    Node node(small());
    Stranger stranger(node);
    flatbuffers::FlatBufferBuilder b;
    std::vector<flatbuffers::Offset<wire::Tensor>> none;
    b.Finish(wire::CreateManifest(b, 77, 123, b.CreateString("m"), 0, 0, 2, 4096, b.CreateVector(none)));
    send(stranger.channel, MessageType::kOffer, bytes_of(b));
    EXPECT_THROW((void)stranger.peer->accept_offer(soon()), ProtocolError);
    const auto answer = next_message(stranger.channel);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->type, static_cast<std::uint8_t>(MessageType::kRefuse));
    const Notice notice = Notice::parse(answer->payload);
    EXPECT_EQ(notice.request_id, 123u);
    EXPECT_NE(notice.reason.find("77"), std::string::npos) << notice.reason;
    EXPECT_FALSE(stranger.peer->lost()) << "the connection stays";
}

TEST(Peer, OfferingNonsenseIsDropped) {
    Node node(small());
    Stranger stranger(node);
    send(stranger.channel, MessageType::kOffer, std::vector<std::byte>(100, std::byte{0xAB}));
    EXPECT_THROW((void)stranger.peer->accept_offer(soon()), ProtocolError);
    EXPECT_TRUE(stranger.peer->lost());
    EXPECT_EQ(node.arena_free_bytes(), node.arena_bytes());
}

TEST(Peer, ClaimingMoreThanThereIsMemoryForIsRefusedBeforeAnyIsTaken) {
    Node node(small());
    Stranger stranger(node);
    Manifest huge = TestCache(1, 1, 8, 64).manifest(5);
    for (auto& t : huge.tensors) t.spec.heads = 1000, t.spec.tokens = 1'000'000, t.spec.head_dim = 1024;
    huge.chunk_bytes = kMaxChunkBytes;
    send(stranger.channel, MessageType::kOffer, huge.serialize());
    EXPECT_THROW((void)stranger.peer->accept_offer(soon()), ArenaFull);
    EXPECT_EQ(node.arena_free_bytes(), node.arena_bytes());
}

TEST(Peer, SendingAnUnknownMessageIsDropped) {
    Node node(small());
    Stranger stranger(node);
    stranger.channel.send(99, {}, soon());
    EXPECT_THROW((void)stranger.peer->receive_message(soon()), ProtocolError);
}

TEST(Peer, FloodingWithMessagesThatNobodyReadsIsDropped) {
    Node node(small());
    Stranger stranger(node);
    try {
        for (int i = 0; i < 5000; ++i) send(stranger.channel, MessageType::kUser, std::vector<std::byte>(16));
    } catch (const PeerLost&) {  // how much of it the sockets swallow first is their business
    }
    for (int i = 0; i < 500 && !stranger.peer->lost(); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(stranger.peer->lost());
}

TEST(Peer, CancellingARequestThatIsNotThereIsAnsweredSoThatNobodyWaits) {
    Node node(small());
    Stranger stranger(node);
    send(stranger.channel, MessageType::kCancel, Notice{404, "", 0}.serialize());
    const auto answer = next_message(stranger.channel);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->type, static_cast<std::uint8_t>(MessageType::kCancelled));
    EXPECT_EQ(Notice::parse(answer->payload).chunks_posted, kUnknownChunks);
}

TEST(Peer, ThatGrantsWhileTheOfferIsGivenUpHearsSo) {
    const Node node(small());
    Stranger stranger(node);
    const auto manifest = TestCache(1, 1, 8, 64).manifest(9);
    const auto interrupted = [&] {
        (void)stranger.peer->offer(manifest, soon(), {}, [&] {
            if (!next_message(stranger.channel)) return;
            send(stranger.channel, MessageType::kGrant, Grant{9, 0, 0, 0, {{0, 0, 1u << 20}}}.serialize());
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            throw std::runtime_error("the user has gone");
        });
    };
    EXPECT_THROW(interrupted(), std::runtime_error);
    const auto answer = next_message(stranger.channel);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->type, static_cast<std::uint8_t>(MessageType::kCancel));
}

TEST(Peer, ThatNeverGrantsRunsIntoTheDeadline) {
    Node node(small());
    Stranger stranger(node);
    EXPECT_THROW((void)stranger.peer->offer(TestCache(1, 1, 8, 64).manifest(5), Deadline::after(50ms)), Timeout);
}

TEST(Peer, ThatIsNotThereIsAConnectionFailedNamingTheAddress) {
    Node node(small());
    std::uint16_t free_port = 0;
    {
        free_port = Listener(node, "127.0.0.1", 0).port();
    }
    const std::string error = error_of([&] { (void)Peer::connect(node, "127.0.0.1", free_port, soon()); });
    EXPECT_NE(error.find("127.0.0.1:" + std::to_string(free_port)), std::string::npos) << error;
}

}  // namespace
}  // namespace lynx
