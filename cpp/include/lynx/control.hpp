// The control connection: a TCP socket that carries small framed messages beside the fabric: addresses at
// set-up, then what starts and ends a transfer. Its end tells that a peer has gone. With a pre-shared key both ends
// prove that they have it, and everything is encrypted and authenticated; SECURITY.md says what that protects.
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
#include "lynx/preshared_key.hpp"

namespace lynx {

/// On the wire: magic "LYNX", u8 wire version, u8 type, u16 zero, u32 payload bytes (little endian), payload. With a
/// key all of it is sealed (docs/wire-format.md).
struct ControlMessage {
    std::uint8_t type = 0;
    std::vector<std::byte> payload;
};

inline constexpr std::uint8_t kControlVersion = 2;
/// No larger payload is sent, accepted or allocated for.
inline constexpr std::size_t kMaxControlPayload = 16u << 20;
/// The same for one who has not said yet who he is.
inline constexpr std::size_t kMaxStrangerPayload = 4096;

struct ConnectOptions {
    /// Try a port that refuses again until the deadline: the other side may not be up yet.
    bool retry_refused = false;
    /// Called about every 50 ms while waiting, on the caller's thread; what it throws ends the wait.
    std::function<void()> poll = nullptr;
    /// The listener's key, or none if it has none.
    std::optional<PresharedKey> key = std::nullopt;
};

struct ListenOptions {
    /// Whoever connects has to prove that he has the same.
    std::optional<PresharedKey> key = std::nullopt;
    /// Listen on other addresses than loopback without a key: whoever reaches the port is then a peer.
    bool allow_unauthenticated = false;
};

struct ReceiveLimits {
    std::size_t max_payload = kMaxControlPayload;
    /// A begun message is let finish for this long beyond the deadline: half of one ends the connection.
    Clock::duration grace = std::chrono::seconds(5);
};

/// One end of a connection. send() and receive() may run on two threads at once; two sends are serialized.
class LYNX_API ControlChannel {
   public:
    /// Connects over TCP. `host` is a name or an address. With a key it returns once the listener has proved that it
    /// has the same, which a busy one does when it next accepts. Throws ConnectionFailed (refused, unreachable, unknown
    /// host), AuthenticationFailed, Timeout, or whatever options.poll throws.
    [[nodiscard]] static ControlChannel connect(const std::string& host, std::uint16_t port, Deadline deadline,
                                                const ConnectOptions& options = {});
    ControlChannel(ControlChannel&&) noexcept;
    ControlChannel& operator=(ControlChannel&&) noexcept;
    ~ControlChannel();

    /// Sends all of it or throws: Timeout, PeerLost (closed or reset), InvalidArgument (payload too large). A Timeout
    /// ends the connection if part of the message has gone out, and always where there is a key.
    void send(std::uint8_t type, ConstByteSpan payload, Deadline deadline);
    /// The next message, or nothing if the deadline passes before its first byte came. Throws PeerLost at the
    /// end of the connection, ProtocolError for a bad frame (naming both versions if they differ) or a payload above
    /// the limit, AuthenticationFailed if only one side has a key or the message is not the peer's, Timeout if
    /// the rest of a begun message does not come by the deadline plus the grace. Each of them ends the connection.
    [[nodiscard]] std::optional<ControlMessage> receive(Deadline deadline, const ReceiveLimits& limits = {});
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

/// Listens on a TCP port; closed by its destructor. One thread accepts at a time.
class LYNX_API ControlListener {
   public:
    /// Port 0 takes a free one. Throws ConnectionFailed naming host, port and the system's reason, and InvalidArgument
    /// without a key if `host` is, or resolves to, any other address than those of loopback.
    ControlListener(const std::string& host, std::uint16_t port, const ListenOptions& options = {});
    ControlListener(ControlListener&&) noexcept;
    ControlListener& operator=(ControlListener&&) noexcept;
    ~ControlListener();

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// The next connection, or nothing by the deadline. With a key, only one that has proved to have it. For each of
    /// the two frames that this takes a stranger has 2 s; 64 may be at it at once, and they hold nobody up. One that
    /// fails is closed, and thrown here as AuthenticationFailed or ProtocolError; the listener stays usable.
    [[nodiscard]] std::optional<ControlChannel> accept(Deadline deadline);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lynx
