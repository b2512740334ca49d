// A peer in a process of its own, to be killed: this test binary again, started with kPeerFlag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lynx/deadline.hpp"
#include "lynx/fabric.hpp"
#include "subprocess.hpp"

namespace lynx::testing {

inline constexpr const char* kPeerFlag = "--be-a-peer";
inline constexpr std::size_t kPeerArenaBytes = 1 << 20;

/// The peer's side: opens an endpoint, tells its address, then one byte for each arrival; ends with its
/// stdin.
int be_a_peer(const std::string& provider);

/// The test's side.
class PeerProcess {
   public:
    explicit PeerProcess(const std::string& provider);

    [[nodiscard]] const std::vector<std::byte>& address() const noexcept { return address_; }
    [[nodiscard]] pid_t pid() const noexcept { return process_.pid(); }
    [[nodiscard]] const RemoteRegion& arena() const noexcept { return arena_; }
    /// True if one more arrival was reported within `at_most`.
    [[nodiscard]] bool wait_arrival(Clock::duration at_most);
    /// Has it write all of its arena to `arena` again and again.
    void stream_to(const std::vector<std::byte>& address, const RemoteRegion& arena) const;
    void send_signal(int signal) const { process_.send_signal(signal); }
    void kill_now() { process_.kill_now(); }
    int finish() { return process_.finish(); }

   private:
    Subprocess process_;
    std::vector<std::byte> address_;
    RemoteRegion arena_;
};

}  // namespace lynx::testing
