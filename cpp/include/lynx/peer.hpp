// Connection set-up, and what starts and ends a transfer, over one control connection. Embedders with a control
// plane of their own need none of it: they carry Node::address(), Manifest and Grant themselves.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lynx/control.hpp"
#include "lynx/deadline.hpp"
#include "lynx/export.hpp"
#include "lynx/node.hpp"
#include "lynx/plane_receiver.hpp"
#include "lynx/plane_sender.hpp"

namespace lynx {

inline constexpr std::size_t kMaxMessageBytes = 1u << 20;

/// What one peer may take of this node. An offer beyond it is refused in words and takes no memory; a peer that sends
/// more than may wait unread is dropped.
struct PeerLimits {
    std::uint32_t max_requests = 256;          ///< its transfers to this node that are under way, or offered, at once
    std::uint64_t max_bytes = 0;               ///< of slots in the arena that they have at once; 0: the whole arena
    std::size_t max_queued = 1024;             ///< offers, and the embedder's messages, that nobody has taken yet
    std::size_t max_queued_bytes = 64u << 20;  ///< of each of the two
};

struct PeerOptions {
    /// Something is sent at least this often.
    Clock::duration heartbeat_interval = std::chrono::milliseconds(250);
    /// A peer that has not been heard of for so long while this process listened is lost. Several intervals, on both
    /// sides alike; at least 0.2 s.
    Clock::duration lost_after = std::chrono::milliseconds(1800);
    /// A connection that breaks or falls silent is taken up anew within this time, if both sides give it: the side that
    /// had connected connects again, and the Listener that had taken it puts the new connection in the old one's place.
    /// Messages are neither lost nor doubled, and transfers go on with what has not arrived. After it, or at once if
    /// the peer's process is another one, the peer is lost. 0: never.
    Clock::duration reconnect_for{};
    PeerLimits limits;
};

/// The other node, connected. Two threads of its own read and write the connection; when it ends or falls silent, every
/// transfer with this peer fails with PeerLost at once. Members may be called from any thread. Both sides may offer.
class LYNX_API Peer {
   public:
    /// Connects to a Listener. Throws ConnectionFailed, Timeout, AuthenticationFailed (another key, or one on one side
    /// alone), ProtocolError (another version or another provider, naming both).
    [[nodiscard]] static Peer connect(const Node& node, const std::string& host, std::uint16_t port, Deadline deadline,
                                      const ConnectOptions& options = {}, const PeerOptions& peer_options = {});
    Peer(Peer&&) noexcept;
    Peer& operator=(Peer&&) noexcept;
    ~Peer();  ///< closes the connection; transfers that are not finished fail on both sides

    /// Sending side: waits for room in the arena, first come, first served; then offers `manifest` and waits for the
    /// grant. Throws ProtocolError with the receiver's words if it refuses, InvalidArgument if a transfer of that
    /// request_id is under way, ArenaFull (it could never fit), Timeout, PeerLost. `poll` is called about every 50 ms
    /// while waiting, on the caller's thread; what it throws ends the wait, and the offer is taken back.
    [[nodiscard]] PlaneSender offer(Manifest manifest, Deadline deadline, const SenderOptions& options = {},
                                    const std::function<void()>& poll = {});
    /// Sending side, once, where the manifest has no first token: prefill has sampled it. Throws InvalidArgument for a
    /// negative token and where the receiver knows one already, what ended the transfer, PeerLost.
    void send_first_token(PlaneSender& sender, std::int32_t token);
    /// Receiving side: waits for the next offer, takes a slot for it and grants it. Nothing at the deadline. An offer
    /// that cannot be taken (too large, not understood) is refused in words, and thrown here; what exceeds
    /// PeerLimits::max_requests is refused without being shown here. One for which other requests leave no room in the
    /// arena waits for it, over several calls if need be; over all peers of the node the first to come is the first to
    /// be served.
    [[nodiscard]] std::optional<PlaneReceiver> accept_offer(Deadline deadline, const ReceiverOptions& options = {});

    /// Sender: waits until the receiver has confirmed that it has all. False at the deadline. Throws what ended the
    /// transfer: Cancelled if the receiver gave up or needs no more, PeerLost.
    [[nodiscard]] bool finish(PlaneSender& sender, Deadline deadline);
    /// Receiver: confirms that all that was wanted has been read. If not everything has arrived, it cancels the rest.
    /// The slot is free when the receiver is destroyed.
    void finish(PlaneReceiver& receiver);

    /// Ends a transfer from either side, telling the other why: its calls throw Cancelled(reason). Returns once no
    /// late write can land in the slot any more, or false, at the deadline or with the peer lost. The slot is free as
    /// soon as the other side has answered, be that after the deadline; with the peer lost it stays taken.
    bool cancel(PlaneSender& sender, const std::string& reason, Deadline deadline) noexcept;
    bool cancel(PlaneReceiver& receiver, const std::string& reason, Deadline deadline) noexcept;

    /// The embedder's own messages, in order, up to 1 MiB each; Lynx does not look into them. Up to 64 MiB may wait.
    void send_message(ConstByteSpan message);
    /// The next one, or nothing at the deadline. Throws PeerLost once the connection has ended.
    [[nodiscard]] std::optional<std::vector<std::byte>> receive_message(Deadline deadline);

    /// Ends the connection now, as the destructor does: transfers that are not finished fail on both sides.
    void close() noexcept;
    /// "address:port" of the other end.
    [[nodiscard]] const std::string& name() const noexcept;
    [[nodiscard]] bool lost() const noexcept;

   private:
    friend class Listener;
    struct Impl;
    explicit Peer(std::shared_ptr<Impl> impl) noexcept;
    [[nodiscard]] PlaneSender granted(Manifest manifest, const Grant& grant, const SenderOptions& options,
                                      ArenaBlock room);
    std::shared_ptr<Impl> impl_;
};

/// Where peers connect to. A thread of its own greets those who come, up to 16 at a time: one who connects and says
/// nothing holds up nobody, and is dropped after 5 s, or earlier if more come.
class LYNX_API Listener {
   public:
    /// Port 0 takes a free one. Throws ConnectionFailed, and InvalidArgument for other hosts than loopback without a
    /// key, and for options that cannot be kept.
    Listener(const Node& node, const std::string& host, std::uint16_t port, const ListenOptions& options = {},
             const PeerOptions& peer_options = {});
    Listener(Listener&&) noexcept;
    Listener& operator=(Listener&&) noexcept;
    ~Listener();  ///< peers that nobody has accepted are closed

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// The next peer, or nothing if none has connected and said hello by the deadline. A stranger that does not speak
    /// the protocol or has another key is dropped, and thrown here as ProtocolError or AuthenticationFailed (Timeout if
    /// it said nothing); the listener stays usable.
    [[nodiscard]] std::optional<Peer> accept(Deadline deadline);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lynx
