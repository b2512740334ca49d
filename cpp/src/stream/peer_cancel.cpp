// Cancelling, from either side, as a handshake: after it no late write can land in the slot. The link's reader thread
// never waits for it; it looks again at each tick.
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/peer_impl.hpp"

namespace lynx {

namespace {

constexpr auto kDrainPatience = std::chrono::seconds(2);  // for writes that are with the provider when a cancel comes
constexpr auto kLandPatience = std::chrono::seconds(10);  // for what a sender says it has posted

Deadline at_once() {
    return Deadline(Clock::now());
}

}  // namespace

bool Peer::cancel(PlaneSender& sender, const std::string& reason, Deadline deadline) noexcept {
    try {
        const std::uint64_t id = sender.manifest().request_id;
        sender.fail(std::make_exception_ptr(Cancelled(text("cancelled on this side: ", reason))));
        const auto posted = sender.wait_drained(deadline);
        impl_->post(MessageType::kCancel, Notice{id, reason, posted.value_or(kUnknownChunks)}.serialize());
        impl_->close_outgoing(id);
        return posted.has_value();
    } catch (const std::exception&) {
        return false;  // the peer is lost: there is nobody to tell
    }
}

bool Peer::cancel(PlaneReceiver& receiver, const std::string& reason, Deadline deadline) noexcept {
    try {
        Impl& impl = *impl_;
        const std::uint64_t id = receiver.manifest().request_id;
        receiver.fail(std::make_exception_ptr(Cancelled(text("cancelled on this side: ", reason))));
        std::unique_lock lock(impl.mutex);
        impl.throw_if_lost();
        if (const auto request = impl.incoming.find(id); request != impl.incoming.end() && request->second.settled)
            return true;  // the sender has cancelled, too
        const auto [it, first] = impl.settling.try_emplace(id);
        if (first) impl.link.post(MessageType::kCancel, Notice{id, reason, 0}.serialize());
        Impl::Settling& entry = it->second;
        entry.receiver = receiver.state();
        entry.waiters += 1;
        impl.changed.wait_until(lock, deadline.at(), [&] { return entry.settled.has_value() || impl.lost != nullptr; });
        entry.waiters -= 1;
        const bool settled = entry.settled.value_or(false);
        // Else the reader goes on without us, and the slot is free when it is through.
        if (entry.settled && entry.waiters == 0) impl.settling.erase(it);
        return settled;
    } catch (const std::exception&) {
        return false;  // the peer is lost: whether it has stopped is not known
    }
}

void Peer::Impl::on_cancel(const Notice& notice) {
    const std::uint64_t id = notice.request_id;
    const auto error = std::make_exception_ptr(
        Cancelled(text("request ", id, " was cancelled by ", link.peer_name(), ": ", notice.reason)));
    std::shared_ptr<PlaneSender::State> sender;
    // What this side has posted. Of a request that it has forgotten it cannot say, but nobody has to wait to hear that.
    std::uint64_t posted = kUnknownChunks;
    {
        const std::lock_guard lock(mutex);
        if (const auto it = incoming.find(id); it != incoming.end()) {
            if (auto receiver = it->second.receiver.lock()) {
                receiver->fail(error);
                Settling& entry = settling[id];  // there already if this side cancels, too
                entry.receiver = std::move(receiver);
                entry.posted = notice.chunks_posted;
                entry.patience = Deadline::after(kLandPatience);
                return;
            }
        }
        if (const auto it = outgoing.find(id); it != outgoing.end()) {
            sender = it->second.sender.lock();
            if (!it->second.granted) {
                it->second.cancelled = error;
                posted = 0;
            }
        }
    }
    if (!sender) return link.post(MessageType::kCancelled, Notice{id, {}, posted}.serialize());
    sender->stop();
    draining_.insert_or_assign(id, Draining{std::move(sender), error, Deadline::after(kDrainPatience)});
}

void Peer::Impl::on_cancelled(const Notice& notice) {
    const std::lock_guard lock(mutex);
    const auto it = settling.find(notice.request_id);
    if (it == settling.end() || it->second.posted) return;
    it->second.posted = notice.chunks_posted;
    it->second.patience = Deadline::after(kLandPatience);
}

bool Peer::Impl::on_tick() {
    repair();
    const bool settles = settle();
    const bool drains = drain();
    return settles || drains;
}

bool Peer::Impl::settle() {
    std::vector<std::shared_ptr<PlaneReceiver::State>> over;  // let go of outside of the lock
    const std::lock_guard lock(mutex);
    bool more = false;
    for (auto it = settling.begin(); it != settling.end();) {
        Settling& entry = it->second;
        if (!entry.settled && entry.posted) {
            // A sender that cannot say what it posted never can: the slot stays taken, and nobody waits for it.
            if (entry.receiver->settle(*entry.posted, at_once()))
                entry.settled = true;
            else if (*entry.posted == kUnknownChunks || entry.patience.passed())
                entry.settled = false;
            else
                more = true;
            if (entry.settled) changed.notify_all();
            if (const auto request = incoming.find(it->first); request != incoming.end())
                request->second.settled = entry.settled.value_or(false);
        }
        if (entry.settled && entry.waiters == 0) {
            over.push_back(std::move(entry.receiver));
            it = settling.erase(it);
        } else {
            ++it;
        }
    }
    return more;
}

bool Peer::Impl::drain() {
    for (auto it = draining_.begin(); it != draining_.end();) {
        Draining& entry = it->second;
        const auto posted = entry.sender->wait_drained(at_once());
        // The answer goes before this side's caller wakes: it may then end the connection at once.
        if (posted) link.post(MessageType::kCancelled, Notice{it->first, {}, *posted}.serialize());
        if (!entry.told && (posted || entry.patience.passed())) {
            entry.told = true;
            entry.sender->fail(entry.error);
            const std::lock_guard lock(mutex);
            changed.notify_all();  // finish() waits here once all is written
        }
        it = posted ? draining_.erase(it) : std::next(it);
    }
    return !draining_.empty();
}

}  // namespace lynx
