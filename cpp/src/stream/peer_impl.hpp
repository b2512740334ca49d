// A peer's state: its link, and the transfers that hang on it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lynx/peer.hpp"
#include "stream/peer_link.hpp"
#include "stream/peer_messages.hpp"
#include "stream/receive_state.hpp"
#include "stream/send_state.hpp"

namespace lynx {

struct Peer::Impl final : LinkHandler {
    /// A connection on which both have said hello; `hello` is the peer's.
    Impl(const Node& node, ControlChannel channel, const Hello& hello, const PeerOptions& options, LinkSession session);
    ~Impl();

    /// Queues a small message; throws if the peer is lost.
    void post(MessageType type, std::vector<std::byte> payload);
    /// Queues a message of any size; throws if the peer is lost, or Timeout if it takes none.
    void send(MessageType type, ConstByteSpan payload, Deadline deadline);
    /// The first of `offers` or `messages`, or nothing at the deadline. Throws if the peer is lost and none is left.
    [[nodiscard]] std::optional<std::vector<std::byte>> next(std::deque<std::vector<std::byte>>& queue,
                                                             Deadline deadline);
    /// Fails everything that hangs on this peer. The first cause stays.
    void lose(const std::exception_ptr& cause, bool ended = false) noexcept;
    /// Ends the connection; everything that hangs on it fails.
    void close() noexcept;
    /// A peer that leaves takes its writes with it, but for those that it has given up: of these the receivers hear.
    void tell_doubts() noexcept;
    void throw_if_lost();  // the mutex is held

    /// Takes the number for an offer of this side. Throws InvalidArgument if it is in use.
    void open_outgoing(std::uint64_t request_id);
    void close_outgoing(std::uint64_t request_id) noexcept;
    /// The granted offer's sender. Throws Cancelled if the receiver has given up since it granted.
    void attach(std::uint64_t request_id, std::weak_ptr<PlaneSender::State> sender);
    /// Takes the number, and the bytes off the peer's limit. Throws ProtocolError if either cannot be.
    void open_incoming(std::uint64_t request_id, std::uint64_t bytes);
    void attach(std::uint64_t request_id, std::weak_ptr<PlaneReceiver::State> receiver);
    void close_incoming(std::uint64_t request_id) noexcept;

    /// On the link's reader thread: see LinkHandler.
    void on_message(ControlMessage message) override;
    [[nodiscard]] bool on_tick() override;
    void on_link_down() noexcept override;
    void on_link_up() override;
    void on_missed_heartbeat() noexcept override { node.impl()->metrics.heartbeats_missed.add(); }
    void on_link_lost(const std::exception_ptr& cause, bool ended) noexcept override { lose(cause, ended); }

    /// Room for a transfer of this side. Throws Timeout, ArenaFull, PeerLost, and what `poll` throws.
    [[nodiscard]] ArenaBlock take_room(std::size_t bytes, Deadline deadline, const std::function<void()>& poll);
    /// The same for an offer; nothing at the deadline, after which it keeps its turn.
    [[nodiscard]] std::optional<ArenaBlock> room_for_offer(const Manifest& manifest, Deadline deadline);
    /// That offer, which was opened, is the next one again.
    void put_back(std::uint64_t request_id, std::vector<std::byte> offer);

    struct Outgoing {
        std::weak_ptr<PlaneSender::State> sender;  // none before the grant
        bool granted = false;
        bool done = false;             // the receiver has confirmed
        std::exception_ptr cancelled;  // the receiver gave up before there was a sender
        bool asked = false;            // where to go on
        unsigned asked_in_vain = 0;    // writes have failed, and none has succeeded since it was last asked
        std::uint64_t written = 0;     // bytes, when it was last asked
    };

    struct Incoming {
        std::weak_ptr<PlaneReceiver::State> receiver;  // none while its slot is being taken
        bool attached = false;
        bool settled = false;  // cancelled, and no late write can land any more
        std::uint64_t bytes = 0;
        [[nodiscard]] bool over() const { return attached && receiver.expired(); }
    };

    /// A receiver that has been cancelled. It is held, and its slot with it, until what its sender posted has landed.
    struct Settling {
        std::shared_ptr<PlaneReceiver::State> receiver;
        std::optional<std::uint64_t> posted;  // once the sender has told
        Deadline patience{{}};                // from then on
        std::optional<bool> settled;
        int waiters = 0;  // calls of cancel(); the last one takes the entry away
    };

    /// A sender that the receiver has cancelled: it is answered once nothing is with the provider any more.
    struct Draining {
        std::shared_ptr<PlaneSender::State> sender;
        std::exception_ptr error;
        Deadline patience;  // of this side's caller, who is told at last
        bool told = false;
    };

    const Node node;
    const PeerLimits limits;
    const std::uint64_t epoch;  // of the peer's process
    PeerId fabric_peer = 0;

    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex:
    std::exception_ptr lost;
    std::deque<std::vector<std::byte>> offers;
    std::deque<std::vector<std::byte>> messages;
    std::map<std::uint64_t, std::uint64_t> turns;  // in the arena's line, of offers that wait for room
    /// Answers to this side's offers: a key is there while somebody waits.
    std::map<std::uint64_t, std::optional<ControlMessage>> replies;
    std::map<std::uint64_t, Outgoing> outgoing;  // by request, from the offer to its end
    std::map<std::uint64_t, Incoming> incoming;
    std::map<std::uint64_t, Settling> settling;

   private:
    void on_offer(ControlMessage message);
    void on_reply(std::uint64_t request_id, ControlMessage message);
    void on_cancel(const Notice& notice);
    void on_cancelled(const Notice& notice);
    void on_done(std::uint64_t request_id, bool in_doubt);
    void on_sent(const Sent& sent);
    void on_resend(const Resend& resend);
    void on_first_token(const FirstToken& first);
    void on_resume(std::uint64_t request_id);
    void on_resumed(const Resumption& resumption);
    /// Tells what was sent, asks for what is missing, and where to go on.
    void repair();
    [[nodiscard]] bool ask_where_to_go_on(std::uint64_t request_id, Outgoing& request, PlaneSender::State& sender);
    void enqueue(std::deque<std::vector<std::byte>>& queue, std::vector<std::byte> payload);
    [[nodiscard]] bool settle();  // what of `settling` can be; true if some of it still waits for writes
    [[nodiscard]] bool drain();   // the same of `draining_`

    // The link's reader thread's own:
    std::map<std::uint64_t, Draining> draining_;
    bool down_ = false;

   public:
    PeerLink link;  // last: its threads call into all of the above
};

}  // namespace lynx
