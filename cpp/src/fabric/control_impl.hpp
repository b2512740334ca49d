// What a ControlChannel holds, and the frame's layout.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "fabric/socket.hpp"
#include "lynx/control.hpp"

namespace lynx {

struct ControlChannel::Impl {
    /// Takes over a connected, non-blocking socket.
    explicit Impl(fabric::Socket connected);

    /// Ends the connection in both directions; waiting calls on both ends notice.
    void end() noexcept;
    /// Throws PeerLost "connection to X: reason; ...".
    [[noreturn]] void lost(const std::string& reason) const;
    /// Reads exactly this much, or throws; `deadline` is for all of it.
    void read_all(ByteSpan to, Deadline deadline);

    fabric::Socket socket;
    std::string peer;
    std::mutex send_mutex;
    std::atomic<bool> ended = false;
};

}  // namespace lynx
