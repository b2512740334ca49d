// What a control connection with a key shows on its wire, and what becomes of one whose wire somebody changes.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fabric/control_frame.hpp"
#include "fabric/relay.hpp"

namespace lynx {
namespace {

using namespace relayed;

TEST(ControlWire, MessagesOfAllSizesTravelBothWaysWithAKey) {
    Relayed all;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}, kMaxControlPayload}) {
        Bytes payload(size);
        for (std::size_t i = 0; i < size; ++i) payload[i] = static_cast<std::byte>(i * 31 >> 3);
        auto sent = std::async(std::launch::async, [&] {
            all.client.send(3, payload, soon());
            all.server.send(4, payload, soon());
        });
        const auto there = all.server.receive(soon());
        const auto back = all.client.receive(soon());
        sent.get();
        ASSERT_TRUE(there && back);
        EXPECT_EQ(there->type, 3);
        EXPECT_EQ(back->type, 4);
        EXPECT_TRUE(there->payload == payload && back->payload == payload);
    }
}

TEST(ControlWire, WithAKeyNothingOfAMessageIsReadableOnTheWireAndWithoutOneItIs) {
    const Bytes secret = bytes_of("the remote key of the arena");
    Relayed sealed;
    sealed.client.send(200, secret, soon());
    ASSERT_TRUE(sealed.server.receive(soon()));
    const Bytes seen = sealed.relay.seen();
    EXPECT_GT(seen.size(), secret.size());
    EXPECT_FALSE(contains(seen, secret));
    EXPECT_FALSE(contains(ConstByteSpan(seen).last(secret.size() + 60), bytes_of("LYNX")));

    ControlListener listener("127.0.0.1", 0);
    Relay relay(listener.port());
    auto connected = connecting(relay.port(), std::nullopt);
    auto server = listener.accept(soon()).value();
    auto client = connected.get();
    client.send(200, secret, soon());
    ASSERT_TRUE(server.receive(soon()));
    EXPECT_TRUE(contains(relay.seen(), secret));
}

TEST(ControlWire, AFlippedBitOnTheWireEndsTheConnection) {
    Relayed all;
    all.relay.change([](Bytes bytes) {
        bytes[bytes.size() / 2] ^= std::byte{1};
        return bytes;
    });
    all.client.send(1, bytes_of("pay to A"), soon());
    const std::string why = error_of<AuthenticationFailed>([&] { (void)all.server.receive(soon()); });
    EXPECT_TRUE(contains(why, "does not bear the peer's seal")) << why;
    EXPECT_THROW((void)all.client.receive(soon()), PeerLost);
    expect_usable(all.listener);
}

TEST(ControlWire, AMessageSentAgainOnTheWireEndsTheConnection) {
    Relayed all;
    all.relay.change([](Bytes bytes) {
        Bytes twice = bytes;
        twice.insert(twice.end(), bytes.begin(), bytes.end());
        return twice;
    });
    all.client.send(1, bytes_of("once"), soon());
    EXPECT_EQ(all.server.receive(soon()).value().payload, bytes_of("once"));
    EXPECT_THROW((void)all.server.receive(soon()), AuthenticationFailed);
}

TEST(ControlWire, MessagesThatChangePlacesOnTheWireEndTheConnection) {
    Bytes first;  // of the relay's thread
    std::atomic<bool> held = false;
    Relayed all;
    all.relay.change([&first, &held](Bytes bytes) {
        if (!held) {
            first = std::move(bytes);
            held = true;
            return Bytes();
        }
        bytes.insert(bytes.end(), first.begin(), first.end());
        return bytes;
    });
    all.client.send(1, bytes_of("first"), soon());
    while (!held) std::this_thread::sleep_for(1ms);
    all.client.send(1, bytes_of("second"), soon());
    EXPECT_THROW((void)all.server.receive(soon()), AuthenticationFailed);
}

TEST(ControlWire, APlainMessageInASealedConnectionEndsIt) {
    Relayed all;
    all.relay.change([](const Bytes&) {
        Bytes plain(64);
        const fabric::FrameBytes header = fabric::FrameHeader{.type = 1, .payload_bytes = 52}.pack();
        std::copy_n(std::as_bytes(std::span(header)).begin(), header.size(), plain.begin());
        return plain;
    });
    all.client.send(1, {}, soon());
    EXPECT_THROW((void)all.server.receive(soon()), AuthenticationFailed);
}

}  // namespace
}  // namespace lynx
