// Strangers at the door of a control connection, and on its wire.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "fabric/control_frame.hpp"
#include "lynx/control.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr auto kBound = 10s;  // 2 s are promised; a loaded machine gets more

Deadline soon() {
    return Deadline::after(kBound);
}

PresharedKey key(int number = 1) {
    return PresharedKey::from_bytes(Bytes(PresharedKey::kMinBytes, static_cast<std::byte>(number)));
}

Bytes bytes_of(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

bool contains(ConstByteSpan all, ConstByteSpan part) {
    return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

bool contains(const std::string& all, const std::string& part) {
    return all.find(part) != std::string::npos;
}

template <class Expected, class Call>
std::string error_of(Call&& call) {
    try {
        call();
    } catch (const Expected& e) {
        return e.what();
    } catch (const std::exception& e) {
        return std::string("another error: ") + e.what();
    }
    return "no error";
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/// A socket of raw bytes.
class Raw {
   public:
    explicit Raw(int descriptor) : descriptor_(descriptor) {}
    Raw(Raw&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    ~Raw() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    static Raw to(std::uint16_t port) {
        Raw raw(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_in address = loopback(port);
        EXPECT_EQ(connect(raw.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        return raw;
    }
    [[nodiscard]] int get() const { return descriptor_; }
    void send(ConstByteSpan bytes) const { (void)!::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
    /// What is there within the time; nothing at the end of the connection.
    [[nodiscard]] Bytes receive(std::chrono::milliseconds time = kBound) const {
        pollfd ready{descriptor_, POLLIN, 0};
        if (poll(&ready, 1, static_cast<int>(time.count())) <= 0) return {};
        Bytes bytes(1 << 16);
        const ssize_t got = recv(descriptor_, bytes.data(), bytes.size(), 0);
        bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return bytes;
    }

   private:
    int descriptor_;
};

/// One connection, each direction through the hands of the test, which sees it all and may change it.
class Relay {
   public:
    using Change = std::function<Bytes(Bytes)>;

    explicit Relay(std::uint16_t to) : to_(to), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address = loopback(0);
        socklen_t bytes = sizeof(address);
        EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
        EXPECT_EQ(listen(listener_.get(), 1), 0);
        EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
        port_ = ntohs(address.sin_port);
        thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    }
    ~Relay() {
        thread_.request_stop();
        thread_.join();
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// What has passed from the connecting side so far.
    [[nodiscard]] Bytes seen() {
        const std::lock_guard lock(mutex_);
        return seen_;
    }
    /// From now on for what the connecting side sends.
    void change(Change change) {
        const std::lock_guard lock(mutex_);
        change_ = std::move(change);
    }

   private:
    void run(const std::stop_token& stop) {
        pollfd knocking{listener_.get(), POLLIN, 0};
        while (poll(&knocking, 1, 20) == 0)
            if (stop.stop_requested()) return;
        const Raw from(accept(listener_.get(), nullptr, nullptr));
        const Raw to = Raw::to(to_);
        while (!stop.stop_requested()) {
            pollfd ends[] = {{from.get(), POLLIN, 0}, {to.get(), POLLIN, 0}};
            if (poll(ends, 2, 20) <= 0) continue;
            for (const bool back : {false, true}) {
                if ((ends[back ? 1 : 0].revents & (POLLIN | POLLHUP)) == 0) continue;
                Bytes bytes = (back ? to : from).receive();
                if (bytes.empty()) return;
                if (!back) bytes = on_its_way(std::move(bytes));
                (back ? from : to).send(bytes);
            }
        }
    }
    Bytes on_its_way(Bytes bytes) {
        std::unique_lock lock(mutex_);
        seen_.insert(seen_.end(), bytes.begin(), bytes.end());
        const Change change = change_;
        lock.unlock();
        return change ? change(std::move(bytes)) : bytes;
    }

    const std::uint16_t to_;
    Raw listener_;
    std::uint16_t port_ = 0;
    std::mutex mutex_;
    Bytes seen_;
    Change change_;
    std::jthread thread_;
};

std::future<ControlChannel> connecting(std::uint16_t port, std::optional<PresharedKey> with) {
    return std::async(std::launch::async,
                      [port, with] { return ControlChannel::connect("127.0.0.1", port, soon(), {.key = with}); });
}

/// A listener and one connection through a relay, authenticated.
struct Relayed {
    ControlListener listener{"127.0.0.1", 0, {.key = key()}};
    Relay relay{listener.port()};
    std::future<ControlChannel> connected = connecting(relay.port(), key());
    ControlChannel server = listener.accept(soon()).value();
    ControlChannel client = connected.get();
};

/// Does the listener still take a peer with the key?
void expect_usable(ControlListener& listener) {
    auto connected = connecting(listener.port(), key());
    auto server = listener.accept(soon());
    auto client = connected.get();
    ASSERT_TRUE(server);
    client.send(1, bytes_of("hello"), soon());
    EXPECT_EQ(server->receive(soon()).value().payload, bytes_of("hello"));
    server->send(2, {}, soon());
    EXPECT_EQ(client.receive(soon()).value().type, 2);
}

TEST(ControlSecurity, MessagesOfAllSizesTravelBothWaysWithAKey) {
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

TEST(ControlSecurity, WithAKeyNothingOfAMessageIsReadableOnTheWireAndWithoutOneItIs) {
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

TEST(ControlSecurity, AFlippedBitOnTheWireEndsTheConnection) {
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

TEST(ControlSecurity, AMessageSentAgainOnTheWireEndsTheConnection) {
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

TEST(ControlSecurity, MessagesThatChangePlacesOnTheWireEndTheConnection) {
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

TEST(ControlSecurity, APlainMessageInASealedConnectionEndsIt) {
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
    EXPECT_THROW((void)server.receive(soon(), kMaxStrangerPayload), ProtocolError);

    Relayed sealed;
    sealed.client.send(1, Bytes(4096), soon());
    sealed.client.send(1, Bytes(4097), soon());
    EXPECT_TRUE(sealed.server.receive(soon(), kMaxStrangerPayload));
    EXPECT_THROW((void)sealed.server.receive(soon(), kMaxStrangerPayload), ProtocolError);
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
