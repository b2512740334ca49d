// What a ControlChannel holds.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "fabric/control_handshake.hpp"
#include "fabric/control_seal.hpp"
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
    /// Sends these bytes one after the other, or throws.
    void send_all(ConstByteSpan first, ConstByteSpan second, Deadline deadline);
    [[nodiscard]] ControlMessage read_plain(std::size_t max_payload, Deadline deadline);
    [[nodiscard]] ControlMessage read_sealed(std::size_t max_payload, Deadline deadline);
    [[nodiscard]] std::vector<std::byte> read_payload(std::size_t bytes, Deadline deadline);

    /// Goes on with a handshake as far as the bytes that are here allow, without waiting. True once it is done: all
    /// that follows is sealed. Throws AuthenticationFailed or ProtocolError.
    [[nodiscard]] bool advance(fabric::Handshake& handshake);
    /// The connecting side's whole handshake.
    void authenticate(const PresharedKey& key, Deadline deadline, const ConnectOptions& options);
    /// The few bytes of a handshake; an error shows in what is read next.
    void send_now(ConstByteSpan bytes) noexcept;

    fabric::Socket socket;
    std::string peer;
    std::unique_ptr<fabric::Seal> seal;  // with a key, from the end of the handshake on
    std::mutex send_mutex;
    std::atomic<bool> ended = false;
};

}  // namespace lynx
