#include "stream/peer_impl.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

Peer::Impl::Impl(const Node& node_, ControlChannel channel, const Hello& hello, const PeerOptions& options,
                 LinkSession session)
    : node(node_),
      limits(options.limits),
      epoch(hello.epoch),
      link(std::move(channel), options, std::move(session), *this) {
    fabric_peer = node.impl()->add_peer(hello.address);
    link.start();
}

Peer::Impl::~Impl() {
    close();
    node.impl()->remove_peer(fabric_peer);
}

void Peer::Impl::tell_doubts() noexcept {
    try {
        const std::lock_guard lock(mutex);
        if (lost) return;
        for (const auto& [id, request] : outgoing)
            if (const auto sender = request.sender.lock();
                sender && !request.done && sender->posted_in_all() == kUnknownChunks)
                link.post(MessageType::kCancel,
                          Notice{id, "the connection was closed on the sender's side", kUnknownChunks}.serialize());
    } catch (const std::exception&) {
        // The peer does not read: nobody to tell.
    }
}

void Peer::Impl::close() noexcept {
    tell_doubts();
    // First, so that this is the cause they hear of and not the socket's end.
    lose(std::make_exception_ptr(Cancelled(text("the connection to ", link.peer_name(), " was closed on this side"))));
    link.close();
}

void Peer::Impl::post(MessageType type, std::vector<std::byte> payload) {
    {
        const std::lock_guard lock(mutex);
        throw_if_lost();
    }
    link.post(type, std::move(payload));
}

void Peer::Impl::send(MessageType type, ConstByteSpan payload, Deadline deadline) {
    {
        const std::lock_guard lock(mutex);
        throw_if_lost();
    }
    if (!link.send(type, payload, deadline))
        throw Timeout(text("a message of ", payload.size(), " bytes to ", link.peer_name(),
                           " was not taken by the deadline: earlier ones still wait"));
}

std::optional<std::vector<std::byte>> Peer::Impl::next(std::deque<std::vector<std::byte>>& queue, Deadline deadline) {
    std::unique_lock lock(mutex);
    changed.wait_until(lock, deadline.at(), [&] { return !queue.empty() || lost != nullptr; });
    if (queue.empty()) {
        throw_if_lost();
        return std::nullopt;
    }
    auto first = std::move(queue.front());
    queue.pop_front();
    return first;
}

void Peer::Impl::throw_if_lost() {
    if (lost) std::rethrow_exception(lost);
}

void Peer::Impl::lose(const std::exception_ptr& cause, bool ended) noexcept {
    const std::lock_guard lock(mutex);
    if (!lost) lost = cause;
    // What the receiver has confirmed cannot fail any more: a peer may leave right after that.
    for (const auto& [id, request] : outgoing)
        if (const auto sender = request.sender.lock(); sender && !request.done) sender->fail(lost);
    for (const auto& [id, request] : incoming)
        if (const auto receiver = request.receiver.lock()) receiver->lose(lost, ended);
    changed.notify_all();
}

void Peer::Impl::open_outgoing(std::uint64_t request_id) {
    const std::lock_guard lock(mutex);
    throw_if_lost();
    std::erase_if(outgoing, [](const auto& entry) { return entry.second.granted && entry.second.sender.expired(); });
    const auto it = incoming.find(request_id);
    if ((it != incoming.end() && !it->second.over()) || !outgoing.try_emplace(request_id).second)
        throw InvalidArgument(text("request ", request_id, " was offered to ", link.peer_name(),
                                   "; a transfer of that request_id is under way: give each its own"));
}

void Peer::Impl::close_outgoing(std::uint64_t request_id) noexcept {
    const std::lock_guard lock(mutex);
    outgoing.erase(request_id);
}

void Peer::Impl::attach(std::uint64_t request_id, std::weak_ptr<PlaneSender::State> sender) {
    const std::lock_guard lock(mutex);
    throw_if_lost();
    Outgoing& request = outgoing.at(request_id);
    if (request.cancelled) std::rethrow_exception(request.cancelled);
    if (const auto state = sender.lock()) state->set_resumable(link.session() != 0);
    request.sender = std::move(sender);
    request.granted = true;
}

void Peer::Impl::open_incoming(std::uint64_t request_id, std::uint64_t bytes) {
    const std::lock_guard lock(mutex);
    throw_if_lost();
    std::erase_if(incoming, [](const auto& entry) { return entry.second.over(); });
    if (outgoing.contains(request_id) || incoming.contains(request_id))
        throw ProtocolError(text("request ", request_id, " was offered; a transfer of that number is under way"));
    if (limits.max_bytes != 0) {
        std::uint64_t taken = 0;
        for (const auto& [id, request] : incoming) taken += request.bytes;
        if (bytes > limits.max_bytes || taken > limits.max_bytes - bytes)
            throw ProtocolError(text("request ", request_id, " of ", bytes, " bytes was offered; one peer may have ",
                                     limits.max_bytes, " here at once, of which ", taken,
                                     " are taken: finish other requests first, or raise PeerLimits::max_bytes"));
    }
    incoming[request_id].bytes = bytes;
}

void Peer::Impl::attach(std::uint64_t request_id, std::weak_ptr<PlaneReceiver::State> receiver) {
    const std::lock_guard lock(mutex);
    throw_if_lost();
    Incoming& request = incoming.at(request_id);
    request.receiver = std::move(receiver);
    request.attached = true;
}

void Peer::Impl::close_incoming(std::uint64_t request_id) noexcept {
    const std::lock_guard lock(mutex);
    incoming.erase(request_id);
}

void Peer::Impl::on_first_token(const FirstToken& first) {
    const std::lock_guard lock(mutex);
    const auto it = incoming.find(first.request_id);
    if (const auto receiver = it != incoming.end() ? it->second.receiver.lock() : nullptr)
        receiver->set_first_token(first.token);
}

void Peer::Impl::on_message(ControlMessage message) {
    switch (static_cast<MessageType>(message.type)) {
        case MessageType::kOffer: return on_offer(std::move(message));
        case MessageType::kUser: return enqueue(messages, std::move(message.payload));
        case MessageType::kGrant: {
            const std::uint64_t id = Grant::parse(message.payload).request_id;
            return on_reply(id, std::move(message));
        }
        case MessageType::kRefuse: {
            const std::uint64_t id = Notice::parse(message.payload).request_id;
            return on_reply(id, std::move(message));
        }
        case MessageType::kCancel: return on_cancel(Notice::parse(message.payload));
        case MessageType::kCancelled: return on_cancelled(Notice::parse(message.payload));
        case MessageType::kSent: return on_sent(Sent::parse(message.payload));
        case MessageType::kResend: return on_resend(Resend::parse(message.payload));
        case MessageType::kFirstToken: return on_first_token(FirstToken::parse(message.payload));
        case MessageType::kResume: return on_resume(Notice::parse(message.payload).request_id);
        case MessageType::kResumed: return on_resumed(Resumption::parse(message.payload));
        case MessageType::kDone: return on_done(Notice::parse(message.payload).request_id, false);
        case MessageType::kDoneInDoubt: return on_done(Notice::parse(message.payload).request_id, true);
        default: break;
    }
    throw ProtocolError(
        text("the peer at ", link.peer_name(), " sent an unexpected message of type ", int{message.type}));
}

void Peer::Impl::on_offer(ControlMessage message) {
    std::size_t taken = 0;
    {
        const std::lock_guard lock(mutex);
        std::erase_if(incoming, [](const auto& entry) { return entry.second.over(); });
        taken = incoming.size() + offers.size();
    }
    if (taken < limits.max_requests) return enqueue(offers, std::move(message.payload));
    // Nothing more of it is looked at than its number.
    const auto id = offered_request(message.payload);
    if (!id) throw ProtocolError(text("the peer at ", link.peer_name(), " offered what is no manifest"));
    link.post(MessageType::kRefuse, Notice{*id,
                                           text("this peer has ", taken,
                                                " requests under way or offered here, and may have no more: finish "
                                                "others first, or raise PeerLimits::max_requests"),
                                           0}
                                        .serialize());
}

void Peer::Impl::enqueue(std::deque<std::vector<std::byte>>& queue, std::vector<std::byte> payload) {
    const std::lock_guard lock(mutex);
    std::size_t bytes = payload.size();
    for (const auto& waiting : queue) bytes += waiting.size();
    if (queue.size() >= limits.max_queued || bytes > limits.max_queued_bytes)
        throw ProtocolError(text("the peer at ", link.peer_name(), " sent more than ", limits.max_queued,
                                 " messages or ", limits.max_queued_bytes, " bytes that nobody read"));
    queue.push_back(std::move(payload));
    changed.notify_all();
}

void Peer::Impl::on_reply(std::uint64_t request_id, ControlMessage message) {
    const bool granted = message.type == static_cast<std::uint8_t>(MessageType::kGrant);
    {
        const std::lock_guard lock(mutex);
        const auto it = replies.find(request_id);
        if (it != replies.end()) {
            it->second = std::move(message);
            changed.notify_all();
            return;
        }
    }
    // Its waiter has given up. Behind a grant a slot waits for what will not come.
    if (granted)
        link.post(MessageType::kCancel, Notice{request_id, "the offer was granted after its deadline", 0}.serialize());
}

void Peer::Impl::on_done(std::uint64_t request_id, bool in_doubt) {
    std::uint64_t posted = kUnknownChunks;
    {
        const std::lock_guard lock(mutex);
        if (const auto it = outgoing.find(request_id); it != outgoing.end()) {
            it->second.done = true;
            if (const auto sender = it->second.sender.lock()) {
                sender->on_confirmed();
                posted = sender->posted_in_all();
            }
        }
        changed.notify_all();
    }
    if (in_doubt) link.post(MessageType::kCancelled, Notice{request_id, {}, posted}.serialize());
}

}  // namespace lynx
