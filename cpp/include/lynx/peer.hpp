// Connection set-up, and what starts and ends a transfer, over one control connection. Embedders with a control
// plane of their own need none of it: they carry Node::address(), Manifest and Grant themselves.
#pragma once

#include <cstdint>
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

/// The other node, connected. One thread of its own reads the connection; when it ends, every transfer with this
/// peer fails with PeerLost at once. Members may be called from any thread. Both sides may offer.
class LYNX_API Peer {
   public:
    /// Connects to a Listener. Throws ConnectionFailed, Timeout, ProtocolError (another version or another provider,
    /// naming both).
    [[nodiscard]] static Peer connect(const Node& node, const std::string& host, std::uint16_t port, Deadline deadline,
                                      const ConnectOptions& options = {});
    Peer(Peer&&) noexcept;
    Peer& operator=(Peer&&) noexcept;
    ~Peer();  ///< closes the connection; transfers that are not finished fail on both sides

    /// Sending side: offers `manifest` and waits for the grant. Throws ProtocolError with the receiver's words if it
    /// refuses, InvalidArgument if a transfer of that request_id is under way, Timeout, PeerLost.
    [[nodiscard]] PlaneSender offer(Manifest manifest, Deadline deadline, const SenderOptions& options = {});
    /// Sending side, once, where the manifest has no first token: prefill has sampled it. Throws InvalidArgument for a
    /// negative token and where the receiver knows one already, what ended the transfer, PeerLost.
    void send_first_token(PlaneSender& sender, std::int32_t token);
    /// Receiving side: waits for the next offer, takes a slot for it and grants it. Nothing at the deadline. An offer
    /// that cannot be taken (too large, not understood) is refused in words, and thrown here.
    [[nodiscard]] std::optional<PlaneReceiver> accept_offer(Deadline deadline, const ReceiverOptions& options = {});

    /// Sender: waits until the receiver has confirmed that it has all. False at the deadline. Throws what ended the
    /// transfer: Cancelled if the receiver gave up or needs no more, PeerLost.
    [[nodiscard]] bool finish(PlaneSender& sender, Deadline deadline);
    /// Receiver: confirms that all that was wanted has been read. If not everything has arrived, it cancels the rest.
    /// The slot is free when the receiver is destroyed.
    void finish(PlaneReceiver& receiver);

    /// Ends a transfer from either side, telling the other why: its calls throw Cancelled(reason). Returns once no
    /// late write can land in the slot any more, or false, at the deadline or with the peer lost; the slot then stays
    /// taken.
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
    explicit Peer(std::unique_ptr<Impl> impl) noexcept;
    [[nodiscard]] PlaneSender granted(Manifest manifest, const Grant& grant, const SenderOptions& options);
    std::unique_ptr<Impl> impl_;
};

inline constexpr std::size_t kMaxMessageBytes = 1u << 20;

/// Where peers connect to.
class LYNX_API Listener {
   public:
    /// Port 0 takes a free one. Throws ConnectionFailed.
    Listener(const Node& node, const std::string& host, std::uint16_t port);
    [[nodiscard]] std::uint16_t port() const noexcept { return control_.port(); }
    /// The next peer, or nothing if none has connected by the deadline. One that has gets up to 5 s more to say hello,
    /// and others wait behind it. A stranger that does not speak the protocol is dropped, and thrown here as
    /// ProtocolError; the listener stays usable.
    [[nodiscard]] std::optional<Peer> accept(Deadline deadline);

   private:
    Node node_;
    ControlListener control_;
};

}  // namespace lynx
