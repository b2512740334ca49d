// A whole peer in a process of its own, to be killed, stopped and cut off: this test binary again.
#pragma once

#include <poll.h>

#include <string>

#include "lynx/deadline.hpp"
#include "subprocess.hpp"

namespace lynx::testing {

inline constexpr const char* kPeerFlag = "--be-a-peer";

/// The peer's side: connects to host:port and, as "prefill", sends one slow request after the other, or, as "decode",
/// takes what is offered. One line for each thing that happens. If `own_host` is not empty, it first moves to a network
/// namespace of its own and waits until it is told that it has that address. Ends with its stdin.
int be_a_peer(const std::string& role, const std::string& provider, const std::string& host, const std::string& port,
              const std::string& own_host, const std::string& reconnect_for_s);

/// The test's side.
class PeerProcess {
   public:
    PeerProcess(const std::string& role, const std::string& provider, const std::string& host, std::uint16_t port,
                const std::string& own_host = {}, int reconnect_for_s = 0)
        : process_({kPeerFlag, role, provider, host, std::to_string(port), own_host, std::to_string(reconnect_for_s)}) {
    }

    /// Waits until it has said this line.
    [[nodiscard]] bool says(const std::string& line, Clock::duration at_most = std::chrono::seconds(20)) {
        const Deadline deadline = Deadline::after(at_most);
        for (;;) {
            const auto end = said_.find('\n');
            if (end != std::string::npos) {
                const std::string first = said_.substr(0, end);
                said_.erase(0, end + 1);
                if (first == line) return true;
                continue;
            }
            pollfd waiting{process_.from(), POLLIN, 0};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
            if (poll(&waiting, 1, static_cast<int>(left)) <= 0) return false;
            char buffer[256];
            const ssize_t got = read(process_.from(), buffer, sizeof(buffer));
            if (got <= 0) return false;
            said_.append(buffer, static_cast<std::size_t>(got));
        }
    }
    void go_on() const { write_all(process_.to(), "\n", 1); }
    [[nodiscard]] pid_t pid() const noexcept { return process_.pid(); }
    void send_signal(int signal) const { process_.send_signal(signal); }
    void kill_now() { process_.kill_now(); }

   private:
    Subprocess process_;
    std::string said_;
};

}  // namespace lynx::testing
