#include "faulty/faulty_endpoint.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx::faulty {
namespace {

constexpr int kPostsAtOnce = 64;
constexpr auto kRefusedFor = std::chrono::microseconds(100);
constexpr auto kLongestWait = std::chrono::seconds(1);

// What is drawn for a write besides its fault.
constexpr std::uint64_t kHowLong = 1;
constexpr std::uint64_t kHowMany = 2;
constexpr std::uint64_t kWhichBit = 3;

template <class Error>
std::exception_ptr error_of(const Write& write, const std::string& reason) {
    return std::make_exception_ptr(Error(text("fabric provider 'faulty': the write of ", write.source.size(),
                                              " bytes, tag ", write.tag, ", to peer ", write.peer, ": ", reason)));
}

}  // namespace

FaultyEndpoint::FaultyEndpoint(std::shared_ptr<FaultyFabric::Network> network, std::uint64_t stream,
                               EndpointHandler& handler, const EndpointOptions& options)
    : network_(std::move(network)),
      stream_(stream),
      handler_(handler),
      options_(options),
      number_(network_->add_endpoint(*this)),
      thread_([this](const std::stop_token& asked_to_stop) { run(asked_to_stop); }) {}

FaultyEndpoint::~FaultyEndpoint() {
    network_->remove_endpoint(number_);
    thread_.request_stop();
    wake();
    thread_.join();
}

std::vector<std::byte> FaultyEndpoint::address() const {
    std::vector<std::byte> blob(sizeof(number_));
    std::memcpy(blob.data(), &number_, sizeof(number_));
    return blob;
}

PeerId FaultyEndpoint::add_peer(ConstByteSpan address) {
    Peer peer;
    if (address.size() != sizeof(peer.endpoint))
        throw FabricError(text("a peer's address of ", address.size(), " bytes is none of a FaultyFabric"));
    std::memcpy(&peer.endpoint, address.data(), sizeof(peer.endpoint));
    const std::scoped_lock lock(mutex_);
    peers_.emplace(++last_peer_, peer);
    return last_peer_;
}

void FaultyEndpoint::remove_peer(PeerId peer) noexcept {
    const std::scoped_lock lock(mutex_);
    peers_.erase(peer);
}

void FaultyEndpoint::wake() noexcept {
    {
        const std::scoped_lock lock(mutex_);
        woken_ = true;
    }
    changed_.notify_one();
}

void FaultyEndpoint::leave(std::uint32_t tag) {
    {
        const std::scoped_lock lock(mutex_);
        inbox_.push_back(tag);
        woken_ = true;
    }
    changed_.notify_one();
}

void FaultyEndpoint::run(const std::stop_token& asked_to_stop) {
    while (!asked_to_stop.stop_requested()) {
        bool busy = deliver();
        busy |= land_due();
        auto retry_at = Clock::time_point::max();
        busy |= post_some(retry_at);
        for (const Pending& pending : pending_) retry_at = std::min(retry_at, pending.due);
        if (!busy && reports_.empty()) wait(retry_at);
    }
}

/// Tells the handler what has arrived and what has become of its own writes.
bool FaultyEndpoint::deliver() {
    std::deque<std::uint32_t> tags;
    {
        const std::scoped_lock lock(mutex_);
        tags.swap(inbox_);
    }
    for (const std::uint32_t tag : tags) handler_.on_arrival(tag);
    const bool any = !tags.empty() || !reports_.empty();
    for (const Report& report : std::exchange(reports_, {})) {
        if (report.error) {
            handler_.on_write_failed(report.cookie, report.error);
        } else {
            handler_.on_written(report.cookie);
        }
    }
    return any;
}

bool FaultyEndpoint::land_due() {
    const auto now = Clock::now();
    const auto due = std::stable_partition(pending_.begin(), pending_.end(), [&](const Pending& pending) {
        return pending.due > now && pending.after_posts > posts_;
    });
    const std::vector<Pending> landing(std::make_move_iterator(due), std::make_move_iterator(pending_.end()));
    pending_.erase(due, pending_.end());
    for (const Pending& pending : landing) {
        if (pending.copy.empty()) {
            land(pending.write, pending.endpoint);
        } else {
            (void)network_->land(pending.copy, pending.write, pending.endpoint, std::nullopt);
        }
    }
    return !landing.empty();
}

bool FaultyEndpoint::post_some(Clock::time_point& retry_at) {
    const auto now = Clock::now();
    bool any = false;
    for (int i = 0; i < kPostsAtOnce; ++i) {
        retry_at = Clock::time_point::max();
        const Write* write = handler_.next_write(now, retry_at);
        if (write == nullptr) return any;
        if (post(*write) == PostResult::kAgain) {
            retry_at = now + kRefusedFor;
            if (!handler_.on_refused()) return any;
        } else {
            any = true;
        }
    }
    return any;
}

FaultyEndpoint::PostResult FaultyEndpoint::post(const Write& asked) {
    const Write write = asked;  // the handler's own may change once it is told
    std::optional<Peer> peer;
    {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(write.peer); it != peers_.end()) peer = it->second;
    }
    if (!peer) return fail(write, error_of<FabricError>(write, "no such peer; add_peer comes first"));
    if (write.source.empty()) return fail(write, error_of<FabricError>(write, "nothing to write"));
    if (!network_->is_registered(write.source, reinterpret_cast<std::uintptr_t>(write.descriptor)))
        return fail(write, error_of<FabricError>(write, "the source is not in the registered memory that it names"));
    if (peer->dead) return fail(write, error_of<PeerLost>(write, "the link is dead; add the peer anew"));

    std::string invalid;
    const auto decision = network_->decide_on(write, stream_, invalid);
    if (decision.fault == Fault::kRefuse) return refuse(write);
    ++posts_;
    handler_.on_posted();
    if (invalid.empty() && network_->stalls(write, stream_, peer->endpoint)) {
        reports_.push_back({write.cookie, error_of<Timeout>(write, "nothing was confirmed by the deadline")});
    } else if (invalid.empty()) {
        carry_out(decision, write, peer->endpoint);
    } else {
        reports_.push_back({write.cookie, error_of<PeerLost>(write, invalid)});
    }
    return PostResult::kPosted;
}

void FaultyEndpoint::carry_out(const FaultyFabric::Network::Decision& decision, const Write& write,
                               std::uint64_t endpoint) {
    const FaultOptions& options = network_->options();
    const auto drawn = [&](std::uint64_t use) { return draw(options.seed, decision.id, use); };
    const auto now = Clock::now();
    const auto later = now + options.longest_delay * static_cast<int>(1 + drawn(kHowLong) % 100) / 100;
    switch (decision.fault) {
        case Fault::kRefuse:  // has not come this far
        case Fault::kNone: land(write, endpoint); break;
        case Fault::kDrop: reports_.push_back({write.cookie, nullptr}); break;
        case Fault::kDelay: pending_.push_back({.write = write, .endpoint = endpoint, .due = later}); break;
        case Fault::kReorder:
            pending_.push_back({.write = write,
                                .endpoint = endpoint,
                                .due = now + options.longest_delay,
                                .after_posts = posts_ + 1 + drawn(kHowMany) % 3});
            break;
        case Fault::kDuplicate:
            pending_.push_back({.write = write,
                                .endpoint = endpoint,
                                .due = later,
                                .copy = {write.source.begin(), write.source.end()}});
            land(write, endpoint);
            break;
        case Fault::kCorrupt: land(write, endpoint, drawn(kWhichBit)); break;
        case Fault::kKill: {
            const std::scoped_lock lock(mutex_);
            if (const auto it = peers_.find(write.peer); it != peers_.end()) it->second.dead = true;
            reports_.push_back({write.cookie, error_of<PeerLost>(write, "the link has died")});
            break;
        }
    }
}

void FaultyEndpoint::land(const Write& write, std::uint64_t endpoint, std::optional<std::uint64_t> flip) {
    const std::string failure = network_->land(write.source, write, endpoint, flip);
    reports_.push_back({write.cookie, failure.empty() ? nullptr : error_of<PeerLost>(write, failure)});
}

/// "Try again", until the deadline for that.
FaultyEndpoint::PostResult FaultyEndpoint::refuse(const Write& write) {
    const auto now = Clock::now();
    {
        const std::scoped_lock lock(mutex_);
        const auto it = peers_.find(write.peer);
        if (it == peers_.end()) return PostResult::kAgain;
        if (it->second.refused_cookie != write.cookie) {
            it->second.refused_cookie = write.cookie;
            it->second.refused_since = now;
        }
        if (now - it->second.refused_since < options_.post_deadline) return PostResult::kAgain;
    }
    return fail(write, error_of<Timeout>(write, "was not taken by the deadline"));
}

FaultyEndpoint::PostResult FaultyEndpoint::fail(const Write& write, const std::exception_ptr& error) {
    handler_.on_write_failed(write.cookie, error);
    return PostResult::kFailed;
}

void FaultyEndpoint::wait(Clock::time_point until) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, std::min(until, Clock::now() + kLongestWait), [this] { return woken_; });
    woken_ = false;
}

}  // namespace lynx::faulty
