// What one peer may take of a node, whatever it claims.
#include <gtest/gtest.h>

#include <thread>

#include "lynx/slot_layout.hpp"
#include "manifest_generated.h"
#include "stream/cache.hpp"
#include "stream/flatbuffer.hpp"
#include "stream/peer_stranger.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> offer(std::uint64_t request_id) {
    return TestCache(1, 1, 8, 64).manifest(request_id).serialize();
}

// The answer to an offer: empty for a grant, else why it was refused.
std::string refusal_of(ControlChannel& channel, std::uint64_t request_id) {
    const auto answer = next_message(channel);
    if (!answer) return "no answer";
    if (answer->type == static_cast<std::uint8_t>(MessageType::kGrant)) return "";
    EXPECT_EQ(answer->type, static_cast<std::uint8_t>(MessageType::kRefuse));
    const Notice notice = Notice::parse(answer->payload);
    EXPECT_EQ(notice.request_id, request_id);
    return notice.reason;
}

TEST(PeerLimits, OffersBeyondTheMostAreRefusedInWordsAndTakeNothing) {
    Node node(small());
    PeerOptions options = patient();
    options.limits.max_requests = 2;
    Stranger stranger(node, options);
    for (std::uint64_t id = 1; id <= 3; ++id) send(stranger.channel, MessageType::kOffer, offer(id));
    const std::string refusal = refusal_of(stranger.channel, 3);
    EXPECT_NE(refusal.find("max_requests"), std::string::npos) << refusal;
    {
        const auto first = stranger.peer->accept_offer(soon());
        const auto second = stranger.peer->accept_offer(soon());
        ASSERT_TRUE(first && second);
        EXPECT_EQ(refusal_of(stranger.channel, 1), "");
        EXPECT_EQ(refusal_of(stranger.channel, 2), "");
        send(stranger.channel, MessageType::kOffer, offer(4));
        EXPECT_NE(refusal_of(stranger.channel, 4), "") << "two are under way";
        EXPECT_FALSE(stranger.peer->accept_offer(Deadline::after(20ms))) << "nobody is bothered with it";
    }
    send(stranger.channel, MessageType::kOffer, offer(5));
    EXPECT_TRUE(stranger.peer->accept_offer(soon())) << "they have ended: the next one works";
}

TEST(PeerLimits, BytesBeyondTheMostAreRefusedInWordsAndTakeNothing) {
    Node node(small());
    TestCache cache(1, 1, 64, 64);
    const std::uint64_t bytes = SlotLayout(cache.manifest(1)).bytes();
    PeerOptions options = patient();
    options.limits.max_bytes = bytes + bytes / 2;
    Stranger stranger(node, options);
    send(stranger.channel, MessageType::kOffer, cache.manifest(1).serialize());
    const auto first = stranger.peer->accept_offer(soon());
    ASSERT_TRUE(first);
    EXPECT_EQ(refusal_of(stranger.channel, 1), "");
    const std::size_t free_before = node.arena_free_bytes();
    send(stranger.channel, MessageType::kOffer, cache.manifest(2).serialize());
    EXPECT_THROW((void)stranger.peer->accept_offer(soon()), ProtocolError);
    const std::string refusal = refusal_of(stranger.channel, 2);
    EXPECT_NE(refusal.find("max_bytes"), std::string::npos) << refusal;
    EXPECT_EQ(node.arena_free_bytes(), free_before);
    send(stranger.channel, MessageType::kOffer, offer(3));
    EXPECT_TRUE(stranger.peer->accept_offer(soon())) << "a smaller one fits";
}

TEST(PeerLimits, AManifestThatClaims2To60BytesIsRefusedAtOnceAndTheNextRequestWorks) {
    Node node(small());
    Stranger stranger(node);
    flatbuffers::FlatBufferBuilder b;
    std::vector<flatbuffers::Offset<wire::Tensor>> tensors;
    for (std::uint32_t layer = 0; layer < 64; ++layer)  // of 2^54 bytes each
        tensors.push_back(wire::CreateTensor(b, layer, 0, static_cast<std::uint8_t>(Coding::kRaw),
                                             static_cast<std::uint8_t>(DType::kF32), 4, 1u << 16, 1u << 26, 1u << 10,
                                             0));
    b.Finish(wire::CreateManifest(b, kManifestVersion, 60, b.CreateString("m"), 0, 0, 1, kMaxChunkBytes,
                                  b.CreateVector(tensors)));
    send(stranger.channel, MessageType::kOffer, bytes_of(b));
    const auto begin = Clock::now();
    EXPECT_THROW((void)stranger.peer->accept_offer(soon()), ProtocolError);
    const std::string refusal = refusal_of(stranger.channel, 60);
    EXPECT_NE(refusal.find("2^44"), std::string::npos) << refusal;
    EXPECT_LT(Clock::now() - begin, 2s);
    EXPECT_EQ(node.arena_free_bytes(), node.arena_bytes());

    send(stranger.channel, MessageType::kOffer, offer(61));
    EXPECT_TRUE(stranger.peer->accept_offer(soon()));
    EXPECT_EQ(refusal_of(stranger.channel, 61), "");
}

TEST(PeerLimits, ARefusedOfferIsAProtocolErrorWithTheReasonAtTheOfferer) {
    Node node(small());
    Stranger stranger(node);
    std::string words;
    std::thread offering(
        [&] { words = error_of([&] { (void)stranger.peer->offer(TestCache(1, 1, 8, 64).manifest(5), soon()); }); });
    EXPECT_TRUE(next_message(stranger.channel));
    send(stranger.channel, MessageType::kRefuse, Notice{5, "it claims 2^60 bytes", 0}.serialize());
    offering.join();
    EXPECT_NE(words.find("2^60"), std::string::npos) << words;
    EXPECT_FALSE(stranger.peer->lost());
}

TEST(PeerLimits, AnswersThatAPeerDoesNotReadDoNotPileUp) {
    Node node(small());
    Stranger stranger(node);
    try {
        for (int i = 0; i < 2'000'000 && !stranger.peer->lost(); ++i)
            stranger.channel.send(static_cast<std::uint8_t>(MessageType::kCancel), Notice{404, "", 0}.serialize(),
                                  Deadline::after(1s));
    } catch (const Error&) {  // the node does not read any more, once it has dropped the peer
    }
    for (int i = 0; i < 500 && !stranger.peer->lost(); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(stranger.peer->lost());
}

}  // namespace
}  // namespace lynx
