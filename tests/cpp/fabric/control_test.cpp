#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "lynx/control.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

Deadline soon() {
    return Deadline::after(10s);
}

std::vector<std::byte> bytes_of(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

struct Pair {
    ControlListener listener{"127.0.0.1", 0};
    ControlChannel client = ControlChannel::connect("127.0.0.1", listener.port(), soon());
    ControlChannel server = listener.accept(soon()).value();
};

/// A peer that speaks raw bytes.
class RawPeer {
   public:
    explicit RawPeer(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    }
    RawPeer(const RawPeer&) = delete;
    RawPeer& operator=(const RawPeer&) = delete;
    ~RawPeer() { close(fd_); }
    void send(const std::vector<std::uint8_t>& bytes) {
        EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    }

   private:
    int fd_;
};

/// What receive() says to these raw bytes.
template <class Expected>
std::string refusal_of(const std::vector<std::uint8_t>& bytes, Deadline deadline = soon()) {
    ControlListener listener("127.0.0.1", 0);
    RawPeer peer(listener.port());
    auto channel = listener.accept(soon()).value();
    peer.send(bytes);
    try {
        (void)channel.receive(deadline);
        return "nothing was thrown";
    } catch (const Expected& error) {
        return error.what();
    }
}

bool contains(const std::string& all, const std::string& part) {
    return all.find(part) != std::string::npos;
}

TEST(Control, MessagesOfBothDirectionsArriveInOrderWithTheirTypes) {
    Pair pair;
    pair.client.send(1, bytes_of("first"), soon());
    pair.client.send(255, {}, soon());
    pair.server.send(7, bytes_of("reply"), soon());
    const auto first = pair.server.receive(soon());
    const auto second = pair.server.receive(soon());
    const auto reply = pair.client.receive(soon());
    ASSERT_TRUE(first && second && reply);
    EXPECT_EQ(first->type, 1);
    EXPECT_EQ(first->payload, bytes_of("first"));
    EXPECT_EQ(second->type, 255);
    EXPECT_TRUE(second->payload.empty());
    EXPECT_EQ(reply->type, 7);
    EXPECT_EQ(reply->payload, bytes_of("reply"));
    EXPECT_EQ(pair.client.peer_name(), "127.0.0.1:" + std::to_string(pair.listener.port()));
}

TEST(Control, TheFrameOnTheWireIsTheDocumentedOne) {
    ControlListener listener("127.0.0.1", 0);
    RawPeer peer(listener.port());
    auto channel = listener.accept(soon()).value();
    peer.send({'L', 'Y', 'N', 'X', kControlVersion, 42, 0, 0, 3, 0, 0, 0, 'a', 'b', 'c'});
    const auto message = channel.receive(soon());
    ASSERT_TRUE(message);
    EXPECT_EQ(message->type, 42);
    EXPECT_EQ(message->payload, bytes_of("abc"));
}

TEST(Control, TheLargestPayloadArrivesWholeAndALargerOneIsNotSent) {
    Pair pair;
    std::vector<std::byte> large(kMaxControlPayload + 1);
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i * 31 >> 3);
    EXPECT_THROW(pair.client.send(1, large, soon()), InvalidArgument);
    large.pop_back();
    auto sent = std::async(std::launch::async, [&] { pair.client.send(2, large, soon()); });
    const auto message = pair.server.receive(soon());
    sent.get();
    ASSERT_TRUE(message);
    EXPECT_EQ(message->type, 2);
    EXPECT_TRUE(message->payload == large);
}

TEST(Control, SendsOfTwoThreadsDoNotMix) {
    Pair pair;
    constexpr int kEach = 200;
    const auto sender = [&](std::uint8_t type) {
        const std::vector<std::byte> payload(20'000, static_cast<std::byte>(type));
        for (int i = 0; i < kEach; ++i) pair.client.send(type, payload, soon());
    };
    auto one = std::async(std::launch::async, sender, std::uint8_t{1});
    auto two = std::async(std::launch::async, sender, std::uint8_t{2});
    for (int i = 0; i < 2 * kEach; ++i) {
        const auto message = pair.server.receive(soon());
        ASSERT_TRUE(message);
        EXPECT_EQ(message->payload, std::vector<std::byte>(20'000, static_cast<std::byte>(message->type)));
    }
    one.get();
    two.get();
}

TEST(Control, ReceiveGivesNothingIfNothingComesByTheDeadline) {
    Pair pair;
    const auto start = Clock::now();
    EXPECT_FALSE(pair.server.receive(Deadline::after(50ms)));
    EXPECT_GE(Clock::now() - start, 50ms);
    pair.client.send(1, {}, soon());
    EXPECT_TRUE(pair.server.receive(Deadline(Clock::time_point::max())));
}

TEST(Control, WhatIsNoLynxMessageIsRefused) {
    const std::string why =
        refusal_of<ProtocolError>({'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P', '/', '1', '.', '1'});
    EXPECT_TRUE(contains(why, "no Lynx message")) << why;
}

TEST(Control, AnotherVersionIsRefusedWithBothVersionsNamed) {
    const std::string why = refusal_of<ProtocolError>({'L', 'Y', 'N', 'X', 9, 1, 0, 0, 0, 0, 0, 0});
    EXPECT_TRUE(contains(why, "speaks version 9")) << why;
    EXPECT_TRUE(contains(why, "this side version 2")) << why;
}

TEST(Control, AReservedFieldThatIsSetIsRefused) {
    EXPECT_TRUE(
        contains(refusal_of<ProtocolError>({'L', 'Y', 'N', 'X', kControlVersion, 1, 0, 1, 0, 0, 0, 0}), "reserved"));
}

TEST(Control, AClaimBeyondTheLimitIsRefusedBeforeItIsRead) {
    const std::string why = refusal_of<ProtocolError>({'L', 'Y', 'N', 'X', kControlVersion, 1, 0, 0, 1, 0, 0, 1});
    EXPECT_TRUE(contains(why, "claims 16777217 bytes")) << why;
}

TEST(Control, HalfAFrameThenSilenceIsATimeout) {
    const auto start = Clock::now();
    const std::string why = refusal_of<Timeout>({'L', 'Y', 'N', 'X', kControlVersion, 1, 0, 0, 10, 0, 0, 0, 'h', 'a'},
                                                Deadline::after(100ms));
    EXPECT_TRUE(contains(why, "8 bytes")) << why;
    EXPECT_LT(Clock::now() - start, 8s);
}

TEST(Control, AClosedPeerIsLostForSenderAndReceiver) {
    Pair pair;
    {
        const ControlChannel gone = std::move(pair.client);
    }
    EXPECT_THROW((void)pair.server.receive(soon()), PeerLost);
    EXPECT_THROW(
        for (int i = 0; i < 100; ++i) {
            pair.server.send(1, bytes_of("anybody?"), soon());
            std::this_thread::sleep_for(1ms);
        },
        PeerLost);
}

TEST(Control, APeerThatDoesNotReadMakesSendTimeOutAndTheConnectionEnd) {
    Pair pair;
    const std::vector<std::byte> large(kMaxControlPayload);
    EXPECT_THROW(for (int i = 0; i < 10; ++i) pair.client.send(1, large, Deadline::after(100ms)), Timeout);
    EXPECT_THROW(pair.client.send(1, {}, soon()), PeerLost);
}

TEST(Control, ShutdownWakesTheWaitingOnBothEnds) {
    Pair pair;
    const auto wait_on = [](ControlChannel& channel) {
        try {
            (void)channel.receive(soon());
            return std::string("nothing was thrown");
        } catch (const PeerLost& error) {
            return std::string(error.what());
        }
    };
    auto here = std::async(std::launch::async, wait_on, std::ref(pair.client));
    auto there = std::async(std::launch::async, wait_on, std::ref(pair.server));
    std::this_thread::sleep_for(30ms);
    pair.client.shutdown();
    pair.client.shutdown();
    ASSERT_EQ(here.wait_for(5s), std::future_status::ready);
    ASSERT_EQ(there.wait_for(5s), std::future_status::ready);
    EXPECT_TRUE(contains(here.get(), "shut down on this side"));
    EXPECT_TRUE(contains(there.get(), "the peer has closed it"));
}

TEST(Control, ATakenPortIsRefusedInWords) {
    const ControlListener listener("127.0.0.1", 0);
    try {
        const ControlListener second("127.0.0.1", listener.port());
        FAIL() << "the port was taken twice";
    } catch (const ConnectionFailed& error) {
        const std::string expected =
            "cannot listen on 127.0.0.1:" + std::to_string(listener.port()) + ": Address already in use; ";
        EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
    }
}

TEST(Control, AnAddressThatIsNotOfThisMachineCannotBeListenedOn) {
    EXPECT_THROW(ControlListener("203.0.113.7", 0, {.allow_unauthenticated = true}), ConnectionFailed);
    EXPECT_THROW(ControlListener("no-such-host.invalid", 0, {.allow_unauthenticated = true}), ConnectionFailed);
}

std::uint16_t free_port() {
    return ControlListener("127.0.0.1", 0).port();
}

TEST(Control, ARefusedConnectionFailsAtOnceUnlessRetried) {
    const auto port = free_port();
    auto start = Clock::now();  // NOLINT(clang-analyzer-deadcode.DeadStores): read after the try
    try {
        (void)ControlChannel::connect("127.0.0.1", port, soon());
        FAIL() << "somebody answered";
    } catch (const ConnectionFailed& error) {
        EXPECT_TRUE(contains(error.what(), "Connection refused")) << error.what();
        EXPECT_TRUE(contains(error.what(), "127.0.0.1:" + std::to_string(port))) << error.what();
    }
    EXPECT_LT(Clock::now() - start, 5s);
    start = Clock::now();
    EXPECT_THROW(
        (void)ControlChannel::connect("127.0.0.1", port, Deadline::after(200ms), {.retry_refused = true, .poll = {}}),
        ConnectionFailed);
    EXPECT_GE(Clock::now() - start, 200ms);
}

TEST(Control, RetryingFindsAListenerThatStartsLater) {
    const auto port = free_port();
    auto later = std::async(std::launch::async, [&] {
        std::this_thread::sleep_for(100ms);
        ControlListener listener("127.0.0.1", port);
        return listener.accept(soon()).has_value();
    });
    auto channel = ControlChannel::connect("127.0.0.1", port, soon(), {.retry_refused = true, .poll = {}});
    EXPECT_TRUE(later.get());
}

TEST(Control, AcceptGivesNothingIfNobodyComesByTheDeadline) {
    ControlListener listener("127.0.0.1", 0);
    const auto start = Clock::now();
    EXPECT_FALSE(listener.accept(Deadline::after(50ms)));
    EXPECT_GE(Clock::now() - start, 50ms);
}

TEST(Control, NamesAndIpv6AddressesWork) {
    ControlListener by_name("localhost", 0);
    auto client = ControlChannel::connect("localhost", by_name.port(), soon());
    EXPECT_TRUE(by_name.accept(soon()));
    try {
        ControlListener v6("::1", 0);
        auto v6_client = ControlChannel::connect("::1", v6.port(), soon());
        EXPECT_EQ(v6_client.peer_name(), "[::1]:" + std::to_string(v6.port()));
        EXPECT_TRUE(v6.accept(soon()));
    } catch (const ConnectionFailed& error) {
        GTEST_SKIP() << "no IPv6 here: " << error.what();
    }
}

}  // namespace
}  // namespace lynx
