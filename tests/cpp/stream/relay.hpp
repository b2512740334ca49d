// A relay between a peer and its listener, on loopback, to be cut.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace lynx::testing {

class Relay {
   public:
    explicit Relay(std::uint16_t to) : to_(to), listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address = loopback(0);
        socklen_t bytes = sizeof(address);
        if (bind(listening_, reinterpret_cast<sockaddr*>(&address), bytes) != 0 || listen(listening_, 8) != 0 ||
            getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
            throw std::runtime_error("the relay cannot listen");
        port_ = ntohs(address.sin_port);
        thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    }
    ~Relay() {
        thread_.request_stop();
        thread_.join();
        close(listening_);
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Ends the connections that there are; later ones are ended as they come, until mend().
    void cut() { cut_ = true; }
    void mend() { cut_ = false; }
    /// Takes what is sent and passes nothing on: a link that is silent, and not ended.
    void hold(bool held) { held_ = held; }
    /// Where later connections go.
    void turn_to(std::uint16_t to) { to_ = to; }
    [[nodiscard]] int connections() const { return connections_; }

   private:
    static sockaddr_in loopback(std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return address;
    }

    void run(const std::stop_token& stop) {
        std::vector<std::pair<int, int>> pairs;  // each socket, and where what comes of it goes
        const auto end_all = [&] {
            for (const auto& [from, to] : pairs) close(from);
            pairs.clear();
        };
        while (!stop.stop_requested()) {
            if (cut_) end_all();
            std::vector<pollfd> waiting{{listening_, POLLIN, 0}};
            for (const auto& [from, to] : pairs) waiting.push_back({from, POLLIN, 0});
            if (poll(waiting.data(), waiting.size(), 5) <= 0) continue;
            for (std::size_t i = 1; i < waiting.size(); ++i) {
                if (waiting[i].revents == 0 || held_) continue;
                std::array<char, 65536> bytes{};
                const ssize_t got = recv(pairs[i - 1].first, bytes.data(), bytes.size(), 0);
                if (got > 0) {
                    (void)!send(pairs[i - 1].second, bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
                } else {
                    shutdown(pairs[i - 1].second, SHUT_RDWR);
                    shutdown(pairs[i - 1].first, SHUT_RDWR);
                }
            }
            // Ended ones stay in the list, silent, but for their end: rare enough in a test.
            if (held_ ||
                std::any_of(waiting.begin() + 1, waiting.end(), [](const pollfd& w) { return w.revents & POLLHUP; }))
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            if (waiting[0].revents != 0) {
                const int here = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
                const int there = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                const sockaddr_in address = loopback(to_);
                if (cut_ || connect(there, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
                    close(here);
                    close(there);
                    continue;
                }
                pairs.emplace_back(here, there);
                pairs.emplace_back(there, here);
                ++connections_;
            }
        }
        end_all();
    }

    std::atomic<std::uint16_t> to_;
    int listening_;
    std::uint16_t port_ = 0;
    std::atomic<bool> cut_ = false;
    std::atomic<bool> held_ = false;
    std::atomic<int> connections_ = 0;
    std::jthread thread_;
};

}  // namespace lynx::testing
