// A control connection through the hands of the test: raw sockets, a relay that sees and changes what passes, and what
// the tests of strangers have in common.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lynx/control.hpp"
#include "lynx/error.hpp"

namespace lynx::relayed {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr auto kBound = 10s;  // 2 s are promised; a loaded machine gets more

inline Deadline soon() {
    return Deadline::after(kBound);
}

inline PresharedKey key(int number = 1) {
    return PresharedKey::from_bytes(Bytes(PresharedKey::kMinBytes, static_cast<std::byte>(number)));
}

inline Bytes bytes_of(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

inline bool contains(ConstByteSpan all, ConstByteSpan part) {
    return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

inline bool contains(const std::string& all, const std::string& part) {
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

inline sockaddr_in loopback(std::uint16_t port) {
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

inline std::future<ControlChannel> connecting(std::uint16_t port, std::optional<PresharedKey> with) {
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
inline void expect_usable(ControlListener& listener) {
    auto connected = connecting(listener.port(), key());
    auto server = listener.accept(soon());
    auto client = connected.get();
    ASSERT_TRUE(server);
    client.send(1, bytes_of("hello"), soon());
    EXPECT_EQ(server->receive(soon()).value().payload, bytes_of("hello"));
    server->send(2, {}, soon());
    EXPECT_EQ(client.receive(soon()).value().type, 2);
}

}  // namespace lynx::relayed
