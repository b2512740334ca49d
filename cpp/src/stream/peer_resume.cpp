// Transfers that go on: chunks that were damaged or lost are sent again, and after a connection that broke, or writes
// that failed, what has not arrived.
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/peer_impl.hpp"
#include "stream/send_queue.hpp"

namespace lynx {

namespace {

constexpr unsigned kMostAskedInVain = 3;

}  // namespace

void Peer::Impl::on_link_down() noexcept {
    down_ = true;
    const std::lock_guard lock(mutex);
    for (const auto& [id, request] : outgoing)
        if (const auto sender = request.sender.lock(); sender && !request.done) sender->suspend();
}

void Peer::Impl::on_link_up() {
    down_ = false;
    node.impl()->metrics.reconnects.add();
}

void Peer::Impl::repair() {
    std::vector<std::pair<MessageType, std::vector<std::byte>>> news;
    {
        const std::lock_guard lock(mutex);
        if (lost) return;
        for (auto& [id, request] : outgoing) {
            const auto sender = request.sender.lock();
            if (!sender || request.done) continue;
            if (const auto written = sender->take_sent())
                news.emplace_back(MessageType::kSent,
                                  Sent{id, static_cast<std::uint8_t>(written->parts), written->round}.serialize());
            if (ask_where_to_go_on(id, request, *sender))
                news.emplace_back(MessageType::kResume, Notice{id, {}, 0}.serialize());
        }
        for (const auto& [id, request] : incoming)
            if (const auto receiver = request.receiver.lock())
                if (auto missing = receiver->take_missing(Clock::now()); !missing.runs.empty())
                    news.emplace_back(MessageType::kResend, Resend{id, std::move(missing)}.serialize());
    }
    for (auto& [type, payload] : news) link.post(type, std::move(payload));
}

bool Peer::Impl::ask_where_to_go_on(std::uint64_t request_id, Outgoing& request, PlaneSender::State& sender) {
    // Only when nothing of it is under way: then no late write meets the new grant, and what has arrived is all that
    // has.
    if (down_ || request.asked || !sender.may_resume()) return false;
    const std::uint64_t written = sender.written_bytes();
    // Where the connection broke and no write has failed, there may just have been nothing to write.
    const bool failed = sender.take_failed();
    if (written > request.written)
        request.asked_in_vain = 0;
    else if (failed)
        request.asked_in_vain += 1;
    request.written = written;
    if (request.asked_in_vain > kMostAskedInVain) {
        sender.fail(
            std::make_exception_ptr(PeerLost(text("request ", request_id, ": the connection to ", link.peer_name(),
                                                  " stands, but its memory cannot be written to any more; ",
                                                  kMostAskedInVain, " times the writes failed and were begun anew"))));
        return false;
    }
    request.asked = true;
    return true;
}

void Peer::Impl::on_resume(std::uint64_t request_id) {
    std::shared_ptr<PlaneReceiver::State> receiver;
    {
        const std::lock_guard lock(mutex);
        if (settling.contains(request_id)) return;  // it is being cancelled, and hears so
        // Of one that is settled the memory has no keys any more, and gets none.
        if (const auto it = incoming.find(request_id); it != incoming.end() && !it->second.settled)
            receiver = it->second.receiver.lock();
    }
    if (!receiver)
        return link.post(MessageType::kCancel, Notice{request_id, "its receiver is not there any more", 0}.serialize());
    link.post(MessageType::kResumed, Resumption{receiver->grant_anew(), receiver->arrived()}.serialize());
}

void Peer::Impl::on_resumed(const Resumption& resumption) {
    const std::lock_guard lock(mutex);
    const auto it = outgoing.find(resumption.grant.request_id);
    const auto sender = it != outgoing.end() ? it->second.sender.lock() : nullptr;
    if (!sender || !std::exchange(it->second.asked, false)) return;
    const std::size_t chunks = sender->layout.chunks();
    if (resumption.arrived.size() != (chunks + 7) / 8 * 8)
        throw ProtocolError(text("the peer at ", link.peer_name(), " resumed request ", it->first, " of ", chunks,
                                 " chunks and told of ", resumption.arrived.size()));
    node.impl()->queue->revive(fabric_peer);
    sender->resume(resumption.grant, std::span(resumption.arrived).first(chunks));
}

void Peer::Impl::on_sent(const Sent& sent) {
    const std::lock_guard lock(mutex);
    const auto it = incoming.find(sent.request_id);
    if (const auto receiver = it != incoming.end() ? it->second.receiver.lock() : nullptr)
        receiver->on_sent({sent.parts, sent.round});
}

void Peer::Impl::on_resend(const Resend& resend) {
    const std::lock_guard lock(mutex);
    const auto it = outgoing.find(resend.request_id);
    const auto sender = it != outgoing.end() ? it->second.sender.lock() : nullptr;
    if (sender && !sender->resend(resend.missing))
        throw ProtocolError(text("the peer at ", link.peer_name(), " asks for chunks of request ", resend.request_id,
                                 " again that it was never sent"));
}

}  // namespace lynx
