// Strangers at the door of a control connection.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fabric/control_frame.hpp"
#include "fabric/relay.hpp"

namespace lynx {
namespace {

using namespace relayed;

TEST(ControlSecurity, AWrongKeyIsToldOnBothEndsAndTheListenerGoesOn) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    const auto start = Clock::now();
    auto connected = connecting(listener.port(), key(2));
    const std::string here = error_of<AuthenticationFailed>([&] { (void)listener.accept(soon()); });
    const std::string there = error_of<AuthenticationFailed>([&] { (void)connected.get(); });
    EXPECT_TRUE(contains(here, "has not proved that it has the pre-shared key")) << here;
    EXPECT_TRUE(contains(there, "has another pre-shared key")) << there;
    EXPECT_LT(Clock::now() - start, kBound);
    expect_usable(listener);
}

TEST(ControlSecurity, APeerWithAKeyAgainstAListenerWithoutOneIsToldOnBothEnds) {
    ControlListener listener("127.0.0.1", 0);
    auto connected = connecting(listener.port(), key());
    auto server = listener.accept(soon()).value();
    const std::string here = error_of<AuthenticationFailed>([&] { (void)server.receive(soon()); });
    const std::string there = error_of<AuthenticationFailed>([&] { (void)connected.get(); });
    EXPECT_TRUE(contains(here, "the peer wants a pre-shared key")) << here;
    EXPECT_TRUE(contains(there, "the peer has none")) << there;
}

TEST(ControlSecurity, APeerWithoutAKeyAgainstAListenerWithOneIsToldOnBothEnds) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    auto client = connecting(listener.port(), std::nullopt).get();
    client.send(1, bytes_of("hello"), soon());
    const std::string here = error_of<AuthenticationFailed>([&] { (void)listener.accept(soon()); });
    const std::string there = error_of<AuthenticationFailed>([&] { (void)client.receive(soon()); });
    EXPECT_TRUE(contains(here, "the peer has no pre-shared key")) << here;
    EXPECT_TRUE(contains(there, "the peer wants a pre-shared key")) << there;
    expect_usable(listener);
}

TEST(ControlSecurity, AReplayedHandshakeIsRefused) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    Bytes recorded;
    {
        Relay relay(listener.port());
        auto connected = connecting(relay.port(), key());
        ASSERT_TRUE(listener.accept(soon()));
        (void)connected.get();
        recorded = relay.seen();
    }
    const Raw stranger = Raw::to(listener.port());
    stranger.send(recorded);
    const std::string why = error_of<AuthenticationFailed>([&] { (void)listener.accept(soon()); });
    EXPECT_TRUE(contains(why, "has not proved")) << why;
    expect_usable(listener);
}

TEST(ControlSecurity, AReflectedHandshakeIsRefused) {
    const Raw mirror(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof(address);
    ASSERT_EQ(bind(mirror.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    ASSERT_EQ(listen(mirror.get(), 1), 0);
    ASSERT_EQ(getsockname(mirror.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    auto connected = connecting(ntohs(address.sin_port), key());
    const Raw seen(accept(mirror.get(), nullptr, nullptr));
    seen.send(seen.receive());
    const std::string why = error_of<AuthenticationFailed>([&] { (void)connected.get(); });
    EXPECT_TRUE(contains(why, "own challenge back")) << why;
}

TEST(ControlSecurity, AHandshakeThatIsCutOffIsRefused) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    {
        const Raw stranger = Raw::to(listener.port());
        stranger.send(bytes_of("LYNX"));
    }
    const std::string why = error_of<AuthenticationFailed>([&] { (void)listener.accept(soon()); });
    EXPECT_TRUE(contains(why, "it ended")) << why;
    expect_usable(listener);
}

TEST(ControlSecurity, AStrangerWhoSaysNothingIsDroppedInTimeAndHoldsNobodyUp) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    const Raw silent = Raw::to(listener.port());
    EXPECT_FALSE(listener.accept(Deadline::after(20ms)));  // it is in
    expect_usable(listener);
    const auto start = Clock::now();
    const std::string why = error_of<AuthenticationFailed>([&] { (void)listener.accept(soon()); });
    EXPECT_TRUE(contains(why, "in time")) << why;
    EXPECT_LT(Clock::now() - start, kBound);
    EXPECT_TRUE(silent.receive().empty());
}

TEST(ControlSecurity, StrangersBeyondThePlacesThereAreWaitOutsideAndTheListenerOutlivesThem) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    constexpr int kMany = 100;
    std::vector<Raw> strangers;
    for (int i = 0; i < kMany; ++i) {
        strangers.push_back(Raw::to(listener.port()));
        // The system's own queue is not so long.
        if (i == kMany / 2) (void)listener.accept(Deadline::after(20ms));
    }
    auto connected = connecting(listener.port(), key());
    int dropped = 0;
    std::optional<ControlChannel> server;
    while (!server) {
        try {
            server = listener.accept(soon());
            ASSERT_TRUE(server) << "after " << dropped;
        } catch (const AuthenticationFailed&) {
            ++dropped;
        }
    }
    EXPECT_GE(dropped, kMany - 64);
    (void)connected.get();
}

TEST(ControlSecurity, OneWhoWaitsForABusyListenerIsServedWhenItAcceptsAgain) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    std::atomic<bool> held = true;
    Relay relay(listener.port());
    relay.change([&held](Bytes bytes) {
        while (held) std::this_thread::sleep_for(1ms);
        return bytes;
    });
    auto waiting = connecting(relay.port(), key());
    while (relay.seen().empty()) std::this_thread::sleep_for(1ms);
    EXPECT_FALSE(listener.accept(Deadline::after(20ms)));  // it is in, and has said nothing
    auto first = connecting(listener.port(), key());
    EXPECT_TRUE(listener.accept(soon()));
    (void)first.get();
    held = false;
    std::this_thread::sleep_for(2200ms);  // longer than it may take, but nobody looks
    EXPECT_TRUE(listener.accept(soon()));
    (void)waiting.get();
}

TEST(ControlSecurity, ABusyListenerIsATimeoutForWhoConnects) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    int polls = 0;
    const std::string why = error_of<Timeout>([&] {
        (void)ControlChannel::connect("127.0.0.1", listener.port(), Deadline::after(200ms),
                                      {.poll = [&] { ++polls; }, .key = key()});
    });
    EXPECT_TRUE(contains(why, "did not authenticate in time")) << why;
    EXPECT_GE(polls, 1);
}

TEST(ControlSecurity, WhatAStrangerMayClaimIsSmallAndOfNoLynxIsRefused) {
    ControlListener listener("127.0.0.1", 0, {.key = key()});
    const Raw large = Raw::to(listener.port());
    const fabric::FrameBytes claim =
        fabric::FrameHeader{.kind = fabric::FrameKind::kChallenge, .payload_bytes = kMaxStrangerPayload + 1}.pack();
    large.send(std::as_bytes(std::span(claim)));
    std::string why = error_of<ProtocolError>([&] { (void)listener.accept(soon()); });
    EXPECT_TRUE(contains(why, "at most 4096 are accepted before the peer is known")) << why;

    const Raw http = Raw::to(listener.port());
    http.send(bytes_of("GET / HTTP/1.1\r\n\r\n"));
    why = error_of<ProtocolError>([&] { (void)listener.accept(soon()); });
    EXPECT_TRUE(contains(why, "no Lynx message")) << why;
    expect_usable(listener);
}

TEST(ControlSecurity, TheLimitOfAReaderIsKeptWithAndWithoutAKey) {
    ControlListener plain("127.0.0.1", 0);
    auto connected = connecting(plain.port(), std::nullopt);
    auto server = plain.accept(soon()).value();
    connected.get().send(1, Bytes(4097), soon());
    EXPECT_THROW((void)server.receive(soon(), {.max_payload = kMaxStrangerPayload}), ProtocolError);

    Relayed sealed;
    sealed.client.send(1, Bytes(4096), soon());
    sealed.client.send(1, Bytes(4097), soon());
    EXPECT_TRUE(sealed.server.receive(soon(), {.max_payload = kMaxStrangerPayload}));
    EXPECT_THROW((void)sealed.server.receive(soon(), {.max_payload = kMaxStrangerPayload}), ProtocolError);
}

TEST(ControlSecurity, OtherAddressesThanLoopbackAreNotListenedOnWithoutAKey) {
    for (const char* host : {"0.0.0.0", "::", "", "203.0.113.7", "192.168.0.1", "128.0.0.1", "fe80::1"}) {
        const std::string why = error_of<InvalidArgument>([&] { const ControlListener refused(host, 0); });
        EXPECT_TRUE(contains(why, "lynx keygen")) << host << ": " << why;
        EXPECT_TRUE(contains(why, "--insecure")) << host << ": " << why;
    }
    for (const char* host : {"127.0.0.1", "127.9.8.7", "localhost"}) EXPECT_NO_THROW(ControlListener(host, 0)) << host;
    EXPECT_NO_THROW(ControlListener("0.0.0.0", 0, {.key = key()}));
    EXPECT_NO_THROW(ControlListener("0.0.0.0", 0, {.allow_unauthenticated = true}));
}

}  // namespace
}  // namespace lynx
