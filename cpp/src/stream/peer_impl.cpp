#include "stream/peer_impl.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kSendDeadline = seconds(5);   // a control message is small: a peer that takes none is stuck
constexpr auto kDrainDeadline = seconds(2);  // for writes that are with the provider when a cancel comes
constexpr auto kReadSlice = milliseconds(20);
constexpr auto kHelloSlice = milliseconds(50);
// What a peer may send that nobody has read yet; one that floods is dropped.
constexpr std::size_t kMaxQueued = 1024;
constexpr std::size_t kMaxQueuedBytes = 64u << 20;

Hello exchange_hello(ControlChannel& channel, const Node& node, Deadline deadline, const ConnectOptions& options) {
    channel.send(static_cast<std::uint8_t>(MessageType::kHello), Hello{node.provider(), node.address()}.serialize(),
                 deadline);
    std::optional<ControlMessage> answer;
    while (!answer && !deadline.passed()) {
        answer = channel.receive(Deadline(std::min(deadline.at(), Clock::now() + kHelloSlice)));
        if (options.poll) options.poll();
    }
    if (!answer)
        throw Timeout(
            text("the peer at ", channel.peer_name(), " accepted the connection but did not say hello in time"));
    if (answer->type != static_cast<std::uint8_t>(MessageType::kHello))
        throw ProtocolError(text("the peer at ", channel.peer_name(), " sent message type ", int{answer->type},
                                 " where a hello was due"));
    Hello hello = Hello::parse(answer->payload);
    if (hello.provider != node.provider())
        throw ProtocolError(text("the peer at ", channel.peer_name(), " uses provider ", hello.provider, ", this node ",
                                 node.provider(), ": start both with the same provider"));
    return hello;
}

}  // namespace

Peer::Impl::Impl(const Node& node_, ControlChannel channel_, Deadline deadline, const ConnectOptions& options)
    : node(node_), channel(std::move(channel_)) {
    const Hello hello = exchange_hello(channel, node, deadline, options);
    fabric_peer = node.impl()->add_peer(hello.address);
    reader_ = std::jthread([this](const std::stop_token& stop) { read(stop); });
}

Peer::Impl::~Impl() {
    close();
    if (reader_.joinable()) reader_.join();
    node.impl()->remove_peer(fabric_peer);
}

void Peer::Impl::close() noexcept {
    // First, so that this is the cause they hear of and not the socket's end.
    lose(std::make_exception_ptr(
        Cancelled(text("the connection to ", channel.peer_name(), " was closed on this side"))));
    reader_.request_stop();
    channel.shutdown();
}

void Peer::Impl::send(MessageType type, ConstByteSpan payload) {
    {
        const std::lock_guard lock(mutex);
        throw_if_lost();  // says why, where the socket could only say that it is closed
    }
    channel.send(static_cast<std::uint8_t>(type), payload, Deadline::after(kSendDeadline));
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

void Peer::Impl::lose(const std::exception_ptr& cause) noexcept {
    const std::lock_guard lock(mutex);
    if (!lost) lost = cause;
    // What the receiver has confirmed cannot fail any more: a peer may leave right after that.
    for (const auto& [id, request] : outgoing)
        if (const auto sender = request.sender.lock(); sender && !request.done) sender->fail(lost);
    for (const auto& [id, weak] : incoming)
        if (const auto receiver = weak.lock()) receiver->fail(lost);
    changed.notify_all();
}

void Peer::Impl::open_outgoing(std::uint64_t request_id) {
    const std::lock_guard lock(mutex);
    throw_if_lost();
    std::erase_if(outgoing, [](const auto& entry) { return entry.second.granted && entry.second.sender.expired(); });
    const auto it = incoming.find(request_id);
    if ((it != incoming.end() && !it->second.expired()) || !outgoing.try_emplace(request_id).second)
        throw InvalidArgument(text("request ", request_id, " was offered to ", channel.peer_name(),
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
    request.sender = std::move(sender);
    request.granted = true;
}

void Peer::Impl::attach(std::uint64_t request_id, const std::weak_ptr<PlaneReceiver::State>& receiver) {
    const std::lock_guard lock(mutex);
    throw_if_lost();
    std::erase_if(incoming, [](const auto& entry) { return entry.second.expired(); });
    if (outgoing.contains(request_id) || !incoming.try_emplace(request_id, receiver).second)
        throw ProtocolError(text("request ", request_id, " was offered; a transfer of that number is under way"));
}

void Peer::Impl::read(const std::stop_token& stop) {
    try {
        while (!stop.stop_requested()) {
            if (auto message = channel.receive(Deadline::after(kReadSlice))) dispatch(std::move(*message));
            repair();
        }
    } catch (...) {
        lose(std::current_exception());
        channel.shutdown();
    }
}

void Peer::Impl::repair() {
    std::vector<std::pair<MessageType, std::vector<std::byte>>> news;
    {
        const std::lock_guard lock(mutex);
        for (const auto& [id, request] : outgoing)
            if (const auto sender = request.sender.lock())
                if (const auto parts = sender->take_sent())
                    news.emplace_back(MessageType::kSent, Sent{id, static_cast<std::uint8_t>(*parts)}.serialize());
        for (const auto& [id, weak] : incoming)
            if (const auto receiver = weak.lock())
                if (auto runs = receiver->take_missing(Clock::now()); !runs.empty())
                    news.emplace_back(MessageType::kResend, Resend{id, std::move(runs)}.serialize());
    }
    for (const auto& [type, payload] : news) send(type, payload);
}

void Peer::Impl::on_sent(const Sent& sent) {
    const std::lock_guard lock(mutex);
    const auto it = incoming.find(sent.request_id);
    if (const auto receiver = it != incoming.end() ? it->second.lock() : nullptr) receiver->on_sent(sent.parts);
}

void Peer::Impl::on_resend(const Resend& resend) {
    const std::lock_guard lock(mutex);
    const auto it = outgoing.find(resend.request_id);
    const auto sender = it != outgoing.end() ? it->second.sender.lock() : nullptr;
    if (sender && !sender->resend(resend.runs))
        throw ProtocolError(text("the peer at ", channel.peer_name(), " asks for chunks of request ", resend.request_id,
                                 " again that it was never sent"));
}

void Peer::Impl::on_first_token(const FirstToken& first) {
    const std::lock_guard lock(mutex);
    const auto it = incoming.find(first.request_id);
    if (const auto receiver = it != incoming.end() ? it->second.lock() : nullptr)
        receiver->set_first_token(first.token);
}

void Peer::Impl::dispatch(ControlMessage message) {
    switch (static_cast<MessageType>(message.type)) {
        case MessageType::kOffer: return enqueue(offers, std::move(message));
        case MessageType::kUser: return enqueue(messages, std::move(message));
        case MessageType::kGrant: {
            const std::uint64_t id = Grant::parse(message.payload).request_id;
            return on_reply(id, std::move(message));
        }
        case MessageType::kRefuse:
        case MessageType::kCancelled: {
            const std::uint64_t id = Notice::parse(message.payload).request_id;
            return on_reply(id, std::move(message));
        }
        case MessageType::kCancel: return on_cancel(Notice::parse(message.payload));
        case MessageType::kDone: {
            const std::lock_guard lock(mutex);
            const auto it = outgoing.find(Notice::parse(message.payload).request_id);
            if (it != outgoing.end()) it->second.done = true;
            changed.notify_all();
            return;
        }
        case MessageType::kSent: return on_sent(Sent::parse(message.payload));
        case MessageType::kResend: return on_resend(Resend::parse(message.payload));
        case MessageType::kFirstToken: return on_first_token(FirstToken::parse(message.payload));
        case MessageType::kHello: break;
    }
    throw ProtocolError(
        text("the peer at ", channel.peer_name(), " sent an unexpected message of type ", int{message.type}));
}

void Peer::Impl::enqueue(std::deque<std::vector<std::byte>>& queue, ControlMessage message) {
    const std::lock_guard lock(mutex);
    std::size_t bytes = message.payload.size();
    for (const auto& waiting : queue) bytes += waiting.size();
    if (queue.size() >= kMaxQueued || bytes > kMaxQueuedBytes)
        throw ProtocolError(text("the peer at ", channel.peer_name(), " sent more than ", kMaxQueued, " messages or ",
                                 kMaxQueuedBytes, " bytes that nobody read"));
    queue.push_back(std::move(message.payload));
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
        send(MessageType::kCancel, Notice{request_id, "the offer was granted after its deadline", 0}.serialize());
}

void Peer::Impl::on_cancel(const Notice& notice) {
    const std::uint64_t id = notice.request_id;
    const auto error = std::make_exception_ptr(
        Cancelled(text("request ", id, " was cancelled by ", channel.peer_name(), ": ", notice.reason)));
    std::shared_ptr<PlaneSender::State> sender;
    std::shared_ptr<PlaneReceiver::State> receiver;
    // What this side has posted. Of a request that it has forgotten it cannot say, but nobody has to wait to hear that.
    std::uint64_t posted = kUnknownChunks;
    {
        const std::lock_guard lock(mutex);
        if (const auto it = incoming.find(id); it != incoming.end()) receiver = it->second.lock();
        if (const auto it = outgoing.find(id); it != outgoing.end()) {
            sender = it->second.sender.lock();
            if (!it->second.granted) {
                it->second.cancelled = error;
                posted = 0;
            }
        }
    }
    if (receiver) {
        receiver->fail(error);
        (void)receiver->settle(notice.chunks_posted, Deadline::after(kDrainDeadline));
        return;
    }
    // The answer goes before this side's caller wakes: it may then end the connection at once.
    if (sender) {
        sender->stop();
        posted = sender->wait_drained(Deadline::after(kDrainDeadline)).value_or(kUnknownChunks);
    }
    send(MessageType::kCancelled, Notice{id, {}, posted}.serialize());
    if (sender) {
        sender->fail(error);
        const std::lock_guard lock(mutex);
        changed.notify_all();  // finish() waits here once all is written
    }
}

}  // namespace lynx
