// A peer's state: the control channel, the thread that reads it, and the transfers that hang on it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lynx/peer.hpp"
#include "stream/peer_messages.hpp"
#include "stream/receive_state.hpp"
#include "stream/send_state.hpp"

namespace lynx {

struct Peer::Impl {
    /// Says hello both ways. Throws ProtocolError, Timeout, PeerLost.
    Impl(const Node& node, ControlChannel channel, Deadline deadline, const ConnectOptions& options = {});
    ~Impl();

    void send(MessageType type, ConstByteSpan payload);
    /// The first of `offers` or `messages`, or nothing at the deadline. Throws if the peer is lost and none is left.
    [[nodiscard]] std::optional<std::vector<std::byte>> next(std::deque<std::vector<std::byte>>& queue,
                                                             Deadline deadline);
    /// Fails everything that hangs on this peer. The first cause stays.
    void lose(const std::exception_ptr& cause) noexcept;
    /// Ends the connection; everything that hangs on it fails.
    void close() noexcept;
    void throw_if_lost();  // the mutex is held

    /// Takes the number for an offer of this side. Throws InvalidArgument if it is in use.
    void open_outgoing(std::uint64_t request_id);
    void close_outgoing(std::uint64_t request_id) noexcept;
    /// The granted offer's sender. Throws Cancelled if the receiver has given up since it granted.
    void attach(std::uint64_t request_id, std::weak_ptr<PlaneSender::State> sender);
    /// Throws ProtocolError if the number is in use.
    void attach(std::uint64_t request_id, const std::weak_ptr<PlaneReceiver::State>& receiver);

    struct Outgoing {
        std::weak_ptr<PlaneSender::State> sender;  // none before the grant
        bool granted = false;
        bool done = false;             // the receiver has confirmed
        std::exception_ptr cancelled;  // the receiver gave up before there was a sender
    };

    const Node node;
    ControlChannel channel;
    PeerId fabric_peer = 0;

    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex:
    std::exception_ptr lost;
    std::deque<std::vector<std::byte>> offers;
    std::deque<std::vector<std::byte>> messages;
    /// Answers to this side's offers and cancels: a key is there while somebody waits.
    std::map<std::uint64_t, std::optional<ControlMessage>> replies;
    std::map<std::uint64_t, Outgoing> outgoing;  // by request, from the offer to its end
    std::map<std::uint64_t, std::weak_ptr<PlaneReceiver::State>> incoming;

   private:
    void read(const std::stop_token& stop);
    void dispatch(ControlMessage message);
    void on_cancel(const Notice& notice);
    void on_sent(const Sent& sent);
    void on_resend(const Resend& resend);
    void on_first_token(const FirstToken& first);
    /// Tells what was sent and asks for what is missing.
    void repair();
    void on_reply(std::uint64_t request_id, ControlMessage message);
    void enqueue(std::deque<std::vector<std::byte>>& queue, ControlMessage message);

    std::jthread reader_;  // last: it uses all of the above
};

}  // namespace lynx
