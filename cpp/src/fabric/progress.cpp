// The loop of an endpoint's one thread: reap completions, post what the handler wants sent, wait.
#include <sys/prctl.h>

#include <algorithm>
#include <exception>

#include "fabric/libfabric_endpoint.hpp"

namespace lynx::fabric {

namespace {

constexpr int kReadsAtOnce = 8;     // batches of completions before posting gets its turn
constexpr std::size_t kBatch = 32;  // completions read by one call
constexpr int kPostsAtOnce = 64;    // writes posted before completions get their turn

constexpr auto kLookForSilence = std::chrono::milliseconds(10);
constexpr auto kSettleFor = std::chrono::milliseconds(500);

/// Errors that say the peer or the way to it has gone, rather than that the request was wrong.
bool is_peer_gone(int error) {
    switch (error) {
        case FI_ECANCELED:
        case FI_ECONNABORTED:
        case FI_ECONNREFUSED:
        case FI_ECONNRESET:
        case FI_EHOSTUNREACH:
        case FI_EHOSTDOWN:
        case FI_ENETUNREACH:
        case FI_ENOTCONN:
        case FI_ESHUTDOWN:
        case FI_ETIMEDOUT:
        case EPIPE: return true;
        default: return false;
    }
}

std::exception_ptr write_error(int error, const std::string& message) {
    if (is_peer_gone(error)) return std::make_exception_ptr(PeerLost(message));
    return std::make_exception_ptr(FabricError(message));
}

}  // namespace

void EndpointState::run(const std::stop_token& asked_to_stop) noexcept {
    prctl(PR_SET_NAME, "lynx-fabric");
    // The kernel's default slack of 50 us would more than double the shortest sleeps.
    prctl(PR_SET_TIMERSLACK, 1000UL);
    try {
        drive(asked_to_stop);
    } catch (const Abandoned&) {
        // The handler may be gone: nothing more to do but to end.
    }
}

void EndpointState::drive(const std::stop_token& asked_to_stop) {
    while (!asked_to_stop.stop_requested()) {
        const bool reaped = drain();
        const auto now = Clock::now();
        auto retry_at = Clock::time_point::max();
        const bool sent = post_all(now, retry_at);
        if (receives_missing > 0) post_receives();
        for (const fi_addr_t gone : peers.take_removed(now)) {
            fi_addr_t address = gone;
            calls.run([&] { return fi_av_remove(addresses.get(), &address, 1, 0); });
        }
        if (now - silence_looked_at > kLookForSilence) fail_silent(now);
        if (reaped || sent) {
            idle.progressed(now);
        } else {
            idle.wait(now, retry_at, in_flight > 0 || refused);
        }
    }
    settle();
}

/// Lets what is on its way arrive before the endpoint closes, for a short while. A write cut in the middle is
/// an error at the other side, and one that the rxm of libfabric 1.17 may crash on.
void EndpointState::settle() {
    const Deadline deadline = Deadline::after(kSettleFor);
    while (!broken && peers.any_live_outstanding() && !deadline.passed()) {
        if (!drain()) std::this_thread::yield();
    }
}

bool EndpointState::drain() {
    if (broken) return false;
    std::array<fi_cq_data_entry, kBatch> entries;
    bool any = false;
    for (int i = 0; i < kReadsAtOnce && !broken; ++i) {
        const ssize_t count = calls.run([&] { return fi_cq_read(completions.get(), entries.data(), entries.size()); });
        if (count == -FI_EAGAIN) break;
        any = true;
        if (count == -FI_EAVAIL) {
            take_error();
            continue;
        }
        if (count < 0) {
            break_down(text("fi_cq_read failed: ", reason_of(count)));
            break;
        }
        std::for_each_n(entries.begin(), count, [this](const auto& entry) { take_completion(entry); });
        if (static_cast<std::size_t>(count) < entries.size()) break;
    }
    return any;
}

void EndpointState::take_completion(const fi_cq_data_entry& entry) {
    auto* operation = static_cast<Operation*>(entry.op_context);
    // Data without FI_WRITE is a peer's write. Nothing else of such an event is used: the tcp family of 1.17
    // leaves its length 0 and its FI_RMA flag unset.
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & FI_WRITE) == 0) {
        if (spends_receives && operation != nullptr && operation->kind == Operation::Kind::kReceive) {
            operations.give_back(*operation);
            ++receives_missing;
        }
        ++arrivals;
        handler.on_arrival(static_cast<std::uint32_t>(entry.data));
        return;
    }
    if (operation != nullptr && operation->kind != Operation::Kind::kReceive) finish(*operation);
}

void EndpointState::take_error() {
    fi_cq_err_entry error{};
    const ssize_t count = calls.run([&] { return fi_cq_readerr(completions.get(), &error, 0); });
    if (count != 1) {
        if (count != -FI_EAGAIN) break_down(text("fi_cq_readerr failed: ", reason_of(count)));
        return;
    }
    Operation* operation = operations.find(error.op_context);
    if (operation == nullptr) return;  // of a peer's write to us: that the rest does not come, the peer's end will tell
    if (operation->kind == Operation::Kind::kReceive) {
        operations.give_back(*operation);
        ++receives_missing;
        return;
    }
    std::array<char, 256> buffer{};
    const char* details =
        fi_cq_strerror(completions.get(), error.prov_errno, error.err_data, buffer.data(), buffer.size());
    fail(*operation, write_error(error.err, text(describe(operation->peer, operation->tag, operation->bytes),
                                                 " failed: ", reason_of(error.err), " (provider: ",
                                                 details != nullptr ? details : "nothing to add", ")")));
}

void EndpointState::finish(Operation& operation) {
    const std::uint64_t cookie = operation.cookie;
    const bool reported = operation.kind == Operation::Kind::kAbandoned;
    peers.completed(operation.peer, true);
    operations.give_back(operation);
    if (reported) return;
    --in_flight;
    handler.on_written(cookie);
}

void EndpointState::fail(Operation& operation, const std::exception_ptr& error) {
    const std::uint64_t cookie = operation.cookie;
    const bool reported = operation.kind == Operation::Kind::kAbandoned;
    peers.completed(operation.peer, false);
    operations.give_back(operation);
    if (reported) return;
    --in_flight;
    handler.on_write_failed(cookie, error);
}

/// A stopped peer confirms nothing and is no error to any provider, nor is a write that shm's other side could not
/// make sense of. The provider keeps such a write, and so its operation stays in use.
void EndpointState::fail_silent(Clock::time_point now) {
    silence_looked_at = now;
    const auto silent = peers.take_silent(now, options.post_deadline);
    if (silent.empty()) return;
    const double seconds = std::chrono::duration<double>(options.post_deadline).count();
    for (Operation* operation : operations.writes()) {
        if (std::ranges::find(silent, operation->peer) == silent.end()) continue;
        operation->kind = Operation::Kind::kAbandoned;
        --in_flight;
        const std::string what = describe(operation->peer, operation->tag, operation->bytes);
        handler.on_write_failed(
            operation->cookie,
            std::make_exception_ptr(Timeout(text(what, " was posted, and the peer has confirmed nothing for ", seconds,
                                                 " s; the peer is gone or has stopped, or its link is stuck"))));
    }
}

void EndpointState::break_down(const std::string& reason) {
    const std::string& told =
        broken.emplace(text("fabric provider '", owner->name, "': the endpoint no longer works: ", reason,
                            "; close it and open another one"));
    for (Operation* operation : operations.writes()) fail(*operation, std::make_exception_ptr(FabricError(told)));
    handler.on_broken(std::make_exception_ptr(FabricError(told)));
}

bool EndpointState::post_all(Clock::time_point now, Clock::time_point& retry_at) {
    refused = false;
    bool any = false;
    for (int i = 0; i < kPostsAtOnce; ++i) {
        retry_at = Clock::time_point::max();
        const Write* write = handler.next_write(now, retry_at);
        if (write == nullptr) break;
        switch (post(*write, now)) {
            case PostResult::kPosted:
                handler.on_posted();
                any = true;
                break;
            case PostResult::kFailed: any = true; break;
            case PostResult::kAgain:
                refused = true;
                if (!handler.on_refused()) return any;
                break;
        }
    }
    return any;
}

std::string EndpointState::refusal(const Write& write, const PeerTable::Peer& peer) const {
    if (broken) return *broken;
    if (peer.removed)
        return describe(write.peer, write.tag, write.source.size()) + ": no such peer; add_peer comes first";
    if (write.source.empty()) return describe(write.peer, write.tag, 0) + ": nothing to write; pass at least one byte";
    if (write.source.size() > info->ep_attr->max_msg_size) {
        return text(describe(write.peer, write.tag, write.source.size()), ": the provider takes at most ",
                    info->ep_attr->max_msg_size, " bytes a write; send smaller ones");
    }
    return {};
}

EndpointState::PostResult EndpointState::post(const Write& write, Clock::time_point now) {
    const auto peer = peers.find(write.peer);
    if (const std::string reason = refusal(write, peer); !reason.empty()) {
        handler.on_write_failed(write.cookie, std::make_exception_ptr(FabricError(reason)));
        return PostResult::kFailed;
    }
    // Some providers queue without end, which would hide a peer that has stopped. Counted for each peer, so
    // that what a dead one never gives back (shm) is not missing to the others.
    if (peer.outstanding >= info->tx_attr->size) return blocked(write, peer, now);
    Operation& operation = operations.take(Operation::Kind::kWrite);
    operation.peer = write.peer;
    operation.cookie = write.cookie;
    operation.tag = write.tag;
    operation.bytes = write.source.size();

    iovec local{const_cast<std::byte*>(write.source.data()), write.source.size()};
    void* descriptor = write.descriptor;
    fi_rma_iov remote{write.remote_address, write.source.size(), write.remote_key};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = peer.address;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &operation;
    message.data = write.tag;
    const ssize_t result = calls.run([&] { return fi_writemsg(endpoint.get(), &message, write_flags); });
    if (result == 0) {
        peers.posted(write.peer, now);
        ++in_flight;
        return PostResult::kPosted;
    }
    operations.give_back(operation);
    if (result == -FI_EAGAIN) return blocked(write, peer, now);
    const int error = static_cast<int>(-result);
    handler.on_write_failed(write.cookie, write_error(error, text(describe(write.peer, write.tag, write.source.size()),
                                                                  " could not be posted: ", reason_of(error))));
    return PostResult::kFailed;
}

/// "Try again" is normal: a full queue, a connection being made. It is also all that tcp and net ever say of
/// a peer that has died, hence the deadline.
EndpointState::PostResult EndpointState::blocked(const Write& write, const PeerTable::Peer& peer,
                                                 Clock::time_point now) {
    const bool in_time = now - peers.blocked(write.peer, write.cookie, now) < options.post_deadline;
    if (in_time && !peer.stuck) return PostResult::kAgain;
    peers.set_stuck(write.peer);
    const std::string what = describe(write.peer, write.tag, write.source.size());
    const double seconds = std::chrono::duration<double>(options.post_deadline).count();
    handler.on_write_failed(
        write.cookie,
        in_time ? std::make_exception_ptr(PeerLost(what + " was not taken, and this peer's last write has timed out; "
                                                          "remove the peer, or connect to it anew"))
                : std::make_exception_ptr(Timeout(text(what, " was not taken by the provider within ", seconds,
                                                       " s; the peer is gone or has stopped, or its link is stuck"))));
    return PostResult::kFailed;
}

void EndpointState::post_receives() {
    while (receives_missing > 0) {
        Operation& operation = operations.take(Operation::Kind::kReceive);
        const ssize_t result =
            calls.run([&] { return fi_recv(endpoint.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, &operation); });
        if (result != 0) {
            operations.give_back(operation);
            if (result != -FI_EAGAIN) break_down(text("fi_recv failed: ", reason_of(result)));
            return;
        }
        --receives_missing;
    }
}

std::string EndpointState::describe(PeerId peer, std::uint32_t tag, std::size_t bytes) const {
    return text("fabric provider '", owner->name, "': the write of ", bytes, " bytes, tag ", tag, ", to peer ", peer);
}

}  // namespace lynx::fabric
