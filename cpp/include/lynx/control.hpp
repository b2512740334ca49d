// The control connection: a TCP socket that carries small framed messages beside the fabric: addresses at
// set-up, then what starts and ends a transfer. Its end tells that a peer has gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lynx/buffer.hpp"
#include "lynx/deadline.hpp"
#include "lynx/export.hpp"

namespace lynx {

/// A frame on the wire: magic "LYNX", u8 wire version, u8 type, u16 zero, u32 payload bytes (little endian), payload.
struct ControlMessage {
    std::uint8_t type = 0;
    std::vector<std::byte> payload;
};

inline constexpr std::uint8_t kControlVersion = 1;
/// No larger payload is sent, accepted or allocated for.
inline constexpr std::size_t kMaxControlPayload = 16u << 20;

struct ConnectOptions {
    /// Try a port that refuses again until the deadline: the other side may not be up yet.
    bool retry_refused = false;
    /// Called about every 50 ms while waiting, on the caller's thread; what it throws ends the wait.
    std::function<void()> poll;
};

/// One end of a connection. send() and receive() may run on two threads at once; two sends are serialized.
class LYNX_API ControlChannel {
   public:
    /// Connects over TCP. `host` is a name or an address. Throws ConnectionFailed (refused, unreachable, unknown host),
    /// or whatever options.poll throws.
    [[nodiscard]] static ControlChannel connect(const std::string& host, std::uint16_t port, Deadline deadline,
                                                const ConnectOptions& options = {});
    ControlChannel(ControlChannel&&) noexcept;
    ControlChannel& operator=(ControlChannel&&) noexcept;
    ~ControlChannel();

    /// Sends all of it or throws: Timeout, PeerLost (closed or reset), InvalidArgument (payload too large).
    void send(std::uint8_t type, ConstByteSpan payload, Deadline deadline);
    /// The next message, or nothing if the deadline passes before its first byte came. Throws PeerLost at the
    /// end of the connection, ProtocolError for a bad frame (naming both versions if they differ), Timeout if
    /// the rest of a begun message does not come by the deadline plus `grace`.
    [[nodiscard]] std::optional<ControlMessage> receive(Deadline deadline,
                                                        Clock::duration grace = std::chrono::seconds(5));
    /// Wakes every waiting call on either end; they throw PeerLost. Callable from any thread, more than once.
    void shutdown() noexcept;
    /// "address:port" of the other end.
    [[nodiscard]] const std::string& peer_name() const noexcept;

   private:
    friend class ControlListener;
    struct Impl;
    explicit ControlChannel(std::unique_ptr<Impl> impl) noexcept;
    std::unique_ptr<Impl> impl_;
};

/// Listens on a TCP port; closed by its destructor.
class LYNX_API ControlListener {
   public:
    /// Port 0 takes a free one. Throws ConnectionFailed naming host, port and the system's reason.
    ControlListener(const std::string& host, std::uint16_t port);
    ControlListener(ControlListener&&) noexcept;
    ControlListener& operator=(ControlListener&&) noexcept;
    ~ControlListener();

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// The next connection, or nothing by the deadline.
    [[nodiscard]] std::optional<ControlChannel> accept(Deadline deadline);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lynx
