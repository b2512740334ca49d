#include "lynx/peer.hpp"

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "lynx/shards.hpp"
#include "stream/peer_hello.hpp"
#include "stream/peer_impl.hpp"

namespace lynx {

namespace {

constexpr auto kSendDeadline = std::chrono::seconds(5);
constexpr auto kStopDeadline = std::chrono::seconds(2);
constexpr auto kPollSlice = std::chrono::milliseconds(20);
constexpr auto kCallerPoll = std::chrono::milliseconds(50);

Deadline next_poll(Deadline deadline) {
    return Deadline(std::min(deadline.at(), Clock::now() + kCallerPoll));
}

// Registers a waiter for the answer to one request, for as long as it lives. A grant that nobody has taken by then is
// given back.
class ReplySlot {
   public:
    template <class Impl>
    ReplySlot(Impl& impl, std::uint64_t request_id)
        : mutex_(impl.mutex),
          changed_(impl.changed),
          replies_(impl.replies),
          lost_(impl.lost),
          id_(request_id),
          give_back_([&impl, request_id] {
              const Notice notice{request_id, "the offer was given up when it was granted", 0};
              impl.link.post(MessageType::kCancel, notice.serialize());
          }) {
        const std::lock_guard lock(mutex_);
        if (!replies_.try_emplace(id_, std::nullopt).second)
            throw InvalidArgument(text("request ", id_,
                                       " is already waiting for an answer of this peer: give each transfer "
                                       "a request_id of its own"));
    }
    ReplySlot(const ReplySlot&) = delete;
    ReplySlot& operator=(const ReplySlot&) = delete;
    ~ReplySlot() {
        std::optional<ControlMessage> left;
        {
            const std::lock_guard lock(mutex_);
            left = std::move(replies_.extract(id_).mapped());
        }
        if (left && left->type == static_cast<std::uint8_t>(MessageType::kGrant)) try {
                give_back_();
            } catch (const std::exception&) {
                // The peer is lost, and knows.
            }
    }

    [[nodiscard]] std::optional<ControlMessage> wait(Deadline deadline) {
        std::unique_lock lock(mutex_);
        auto& reply = replies_.at(id_);
        changed_.wait_until(lock, deadline.at(), [&] { return reply.has_value() || lost_ != nullptr; });
        if (!reply && lost_) std::rethrow_exception(lost_);
        return std::exchange(reply, std::nullopt);
    }

   private:
    std::mutex& mutex_;
    std::condition_variable& changed_;
    std::map<std::uint64_t, std::optional<ControlMessage>>& replies_;
    std::exception_ptr& lost_;
    std::uint64_t id_;
    std::function<void()> give_back_;
};

struct Session {
    std::string host;
    std::uint16_t port = 0;
    Hello mine;
    std::uint64_t epoch = 0;  // of the peer's process
};

// One try to take the session up over a new connection: see Redial.
std::optional<Resumed> redial(const Session& session, std::uint64_t received, Deadline deadline,
                              const ConnectOptions& options) {
    Hello theirs;
    std::optional<ControlChannel> channel;
    try {
        channel.emplace(ControlChannel::connect(session.host, session.port, deadline, options));
        Hello mine = session.mine;
        mine.resume = true;
        mine.received = received;
        send_hello(*channel, mine, deadline);
        theirs = receive_hello(*channel, deadline, options.poll);
    } catch (const Error&) {
        options.poll();  // throws if this side ends
        return std::nullopt;
    }
    const std::string name = text("the peer at ", channel->peer_name());
    if (theirs.epoch != session.epoch)
        throw PeerLost(text(name, " was restarted: nothing of what was under way with it is left; connect anew"));
    if (!theirs.resume)
        throw PeerLost(text(name, " does not know of the connection that broke any more; connect anew"));
    return Resumed{std::move(*channel), theirs.received};
}

}  // namespace

Peer::Peer(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Peer::Peer(Peer&&) noexcept = default;
Peer& Peer::operator=(Peer&&) noexcept = default;
Peer::~Peer() = default;

Peer Peer::connect(const Node& node, const std::string& host, std::uint16_t port, Deadline deadline,
                   const ConnectOptions& options, const PeerOptions& peer_options) {
    ControlChannel channel = ControlChannel::connect(host, port, deadline, options);
    Hello mine = hello_of(node);
    if (peer_options.reconnect_for > Clock::duration::zero()) mine.session = new_session();
    send_hello(channel, mine, deadline);
    const Hello theirs = receive_hello(channel, deadline, options.poll);
    check_provider(theirs, channel, node);
    LinkSession session;
    if (mine.session != 0 && theirs.session == mine.session) {
        session.id = mine.session;
        session.redial = [=, epoch = theirs.epoch, again = options](std::uint64_t received, Deadline until,
                                                                    const std::function<void()>& poll) {
            ConnectOptions connecting = again;
            connecting.poll = poll;
            return redial({host, port, mine, epoch}, received, until, connecting);
        };
    }
    return Peer(std::make_shared<Impl>(node, std::move(channel), theirs, peer_options, std::move(session)));
}

PlaneSender Peer::offer(Manifest manifest, Deadline deadline, const SenderOptions& options,
                        const std::function<void()>& poll) {
    const std::uint64_t id = manifest.request_id;
    if (manifest.chunk_bytes == 0) manifest.chunk_bytes = impl_->node.chunk_bytes_for(impl_->fabric_peer);
    const std::vector<std::byte> offer = manifest.serialize();
    impl_->open_outgoing(id);
    try {
        // This side's room first, so that no slot of the other side's waits for it.
        ArenaBlock room = impl_->take_room(SlotLayout(manifest).bytes(), deadline, poll);
        ReplySlot reply(*impl_, id);
        impl_->send(MessageType::kOffer, offer, deadline);
        auto answer = reply.wait(poll ? next_poll(deadline) : deadline);
        while (!answer && poll && !deadline.passed()) {
            poll();
            answer = reply.wait(next_poll(deadline));
        }
        if (!answer) throw Timeout(text("request ", id, " was offered to ", name(), "; no grant came in time"));
        if (answer->type == static_cast<std::uint8_t>(MessageType::kRefuse))
            throw ProtocolError(
                text("request ", id, " was refused by ", name(), ": ", Notice::parse(answer->payload).reason));
        return granted(std::move(manifest), Grant::parse(answer->payload), options, std::move(room));
    } catch (...) {
        impl_->close_outgoing(id);
        throw;
    }
}

PlaneSender Peer::granted(Manifest manifest, const Grant& grant, const SenderOptions& options, ArenaBlock room) {
    const std::uint64_t id = manifest.request_id;
    try {
        PlaneSender sender(impl_->node, impl_->fabric_peer, std::move(manifest), grant, options, std::move(room));
        impl_->attach(id, sender.state());
        return sender;
    } catch (const Cancelled&) {
        throw;
    } catch (const Error& e) {
        // The other side has a slot waiting: it has to hear that nothing will come.
        impl_->post(MessageType::kCancel, Notice{id, e.what(), 0}.serialize());
        throw;
    }
}

void Peer::send_first_token(PlaneSender& sender, std::int32_t token) {
    sender.state()->set_first_token(token);
    impl_->post(MessageType::kFirstToken, FirstToken{sender.manifest().request_id, token}.serialize());
}

std::optional<PlaneReceiver> Peer::accept_offer(Deadline deadline, const ReceiverOptions& options) {
    auto bytes = impl_->next(impl_->offers, deadline);
    if (!bytes) return std::nullopt;
    std::optional<std::uint64_t> opened;
    std::optional<PlaneReceiver> receiver;
    try {
        Manifest manifest = Manifest::parse(*bytes);
        if (options.plan != nullptr) options.plan->check(manifest, options.shard);
        impl_->open_incoming(manifest.request_id, SlotLayout(manifest).bytes());
        opened = manifest.request_id;
        auto room = impl_->room_for_offer(manifest, deadline);
        if (!room) {
            impl_->put_back(*opened, std::move(*bytes));
            return std::nullopt;
        }
        receiver.emplace(PlaneReceiver(impl_->node, std::move(manifest), options, std::move(*room)));
        impl_->attach(*opened, receiver->state());
        impl_->post(MessageType::kGrant, receiver->grant().serialize());
        return receiver;
    } catch (const Error& e) {
        if (receiver) (void)receiver->settle(0, deadline);  // nobody has been told of the slot
        if (opened) impl_->close_incoming(*opened);
        if (const auto id = offered_request(*bytes)) {
            impl_->link.post(MessageType::kRefuse, Notice{*id, e.what(), 0}.serialize());
        } else {
            impl_->lose(std::current_exception());  // not even its number can be read: nothing more is believed
            impl_->link.abort();
        }
        throw;
    }
}

bool Peer::finish(PlaneSender& sender, Deadline deadline) {
    const std::uint64_t id = sender.manifest().request_id;
    std::unique_lock lock(impl_->mutex);
    for (;;) {
        const auto it = impl_->outgoing.find(id);
        if (it == impl_->outgoing.end()) {
            if (sender.failed()) break;
            throw InvalidArgument(text("request ", id, " is not under way with ", name()));
        }
        // The receiver has it all, then, whether or not this side's provider has said so of the last writes.
        if (it->second.done) {
            impl_->outgoing.erase(it);
            return true;
        }
        impl_->throw_if_lost();
        if (sender.failed()) break;
        if (deadline.passed()) return false;
        // A sender that fails wakes its own waiters and not the peer's: looked at now and then.
        impl_->changed.wait_until(lock, std::min(deadline.at(), Clock::now() + kPollSlice));
    }
    lock.unlock();
    (void)sender.wait_written(deadline);  // throws why
    return false;
}

void Peer::finish(PlaneReceiver& receiver) {
    if (!receiver.complete()) {
        // More is on its way than was wanted: the sender has to stop before the slot can be given back.
        (void)cancel(receiver, "the receiver needs no more", Deadline::after(kStopDeadline));
        return;
    }
    const std::uint64_t id = receiver.manifest().request_id;
    const bool in_doubt = receiver.state()->complete_with_doubt();
    if (in_doubt) {
        // Held, and the slot with it, until the sender has answered: see Impl::settle().
        const std::lock_guard lock(impl_->mutex);
        if (!impl_->lost) impl_->settling[id].receiver = receiver.state();
    }
    try {
        impl_->post(in_doubt ? MessageType::kDoneInDoubt : MessageType::kDone, Notice{id, {}, 0}.serialize());
    } catch (const PeerLost&) {
        // All of it is here: that nobody is left to be told takes nothing away.
    }
    const std::lock_guard lock(impl_->mutex);
    if (!in_doubt) impl_->incoming.erase(id);  // else it counts among the peer's requests until then
}

void Peer::send_message(ConstByteSpan message) {
    if (message.size() > kMaxMessageBytes)
        throw InvalidArgument(
            text("a message of ", message.size(), " bytes; at most ", kMaxMessageBytes, " can be sent"));
    impl_->send(MessageType::kUser, message, Deadline::after(kSendDeadline));
}

std::optional<std::vector<std::byte>> Peer::receive_message(Deadline deadline) {
    return impl_->next(impl_->messages, deadline);
}

void Peer::close() noexcept {
    impl_->close();
}

const std::string& Peer::name() const noexcept {
    return impl_->link.peer_name();
}

bool Peer::lost() const noexcept {
    const std::lock_guard lock(impl_->mutex);
    return impl_->lost != nullptr;
}

}  // namespace lynx
