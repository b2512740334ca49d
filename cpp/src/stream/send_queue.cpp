#include "stream/send_queue.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lynx/error.hpp"

namespace lynx {

namespace {

/// A refused write is offered again once the others have nothing, or after so long if they always have something.
constexpr auto kOfferAgain = std::chrono::milliseconds(10);

/// The order within a class.
bool goes_before(const SendCandidate& a, const SendCandidate& b) {
    const auto rank = [](const SendCandidate& c) {
        const bool by_layer = c.send_class == static_cast<unsigned>(SendClass::kAnchor);
        return std::tuple(c.deadline, by_layer ? c.layer : 0, c.served);
    };
    return rank(a) < rank(b);
}

/// Whether the provider still has a write that failed: nobody has confirmed it by a deadline, and the link may live.
bool is_timeout(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const Timeout&) {
        return true;
    } catch (...) {
        return false;
    }
}

}  // namespace

SendQueue::SendQueue(std::size_t rails, double floor) : floor_(floor), rails_(rails) {}

bool SendQueue::add(const std::shared_ptr<PlaneSender::State>& state) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(state->peer);
    if (found == peers_.end() || found->second.removed) return false;
    states_.push_back(state);
    return true;
}

bool SendQueue::knows(PeerId peer) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(peer);
    return found != peers_.end() && !found->second.removed;
}

void SendQueue::add_peer(PeerId peer, const std::vector<Way>& ways) {
    const std::lock_guard lock(mutex_);
    for (const Way& way : ways) peers_[peer].lanes.push_back({way.on_rail, FlightWindow(way.window_bytes), false});
    all_live_rails_ += ways.size();
}

std::vector<PeerId> SendQueue::remove_peer(PeerId peer) noexcept {
    std::vector<std::shared_ptr<PlaneSender::State>> states;  // let go outside of the lock
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.removed) return {};
    found->second.removed = true;
    std::vector<PeerId> on_rails;
    for (const Lane& lane : found->second.lanes) {
        on_rails.push_back(lane.on_rail);
        all_live_rails_ -= lane.dead ? 0U : 1U;
    }
    for (const auto& weak : states_)
        if (auto state = weak.lock(); state && state->peer == peer) states.push_back(std::move(state));
    for (const auto& state : states)
        state->fail(std::make_exception_ptr(PeerLost("the peer that the transfer goes to was removed from the node")));
    forget_if_removed(peer);
    return on_rails;
}

void SendQueue::revive(PeerId peer) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.removed) return;
    for (Lane& lane : found->second.lanes) all_live_rails_ += std::exchange(lane.dead, false) ? 1U : 0U;
}

void SendQueue::forget_if_removed(PeerId peer) noexcept {
    const auto found = peers_.find(peer);
    if (found == peers_.end() || !found->second.removed) return;
    // Its writes that are with a provider are still to come back.
    const bool quiet =
        std::ranges::all_of(found->second.lanes, [](const Lane& l) { return l.window.in_flight() == 0; });
    if (quiet) peers_.erase(found);
}

std::size_t SendQueue::live_rails(PeerId peer) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.removed) return 0;
    return static_cast<std::size_t>(std::ranges::count_if(found->second.lanes, [](const Lane& l) { return !l.dead; }));
}

double SendQueue::rate(PeerId peer) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(peer);
    double sum = 0;
    if (found != peers_.end())
        for (const Lane& lane : found->second.lanes) sum += lane.dead ? 0 : lane.window.rate();
    return sum;
}

SendQueue::Lane* SendQueue::lane(PeerId peer, std::size_t rail) noexcept {
    const auto found = peers_.find(peer);
    return found == peers_.end() ? nullptr : &found->second.lanes[rail];
}

bool SendQueue::other_rail_lives(PeerId peer, std::size_t rail) const noexcept {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return false;
    const auto& lanes = found->second.lanes;
    for (std::size_t r = 0; r < lanes.size(); ++r)
        if (r != rail && !lanes[r].dead) return true;
    return false;
}

const Write* SendQueue::next_write(std::size_t index, Clock::time_point now, Clock::time_point& retry_at) noexcept {
    const std::lock_guard lock(mutex_);
    Rail& rail = rails_[index];
    if (const Write* write = next_refused(rail, now)) return write;
    if (const Write* write = next_chunk(index, now, retry_at)) return write;
    for (auto& [peer, refused] : rail.refused) refused.offered = false;
    return nullptr;
}

const Write* SendQueue::next_refused(Rail& rail, Clock::time_point now) noexcept {
    for (auto it = rail.refused.begin(); it != rail.refused.end();) {
        auto& [write, offered, since] = it->second;
        const auto in_flight = rail.in_flight.find(write.cookie);
        if (in_flight->second.state->has_ended()) {
            in_flight->second.state->put_back(in_flight->second.chunk, false);
            rail.in_flight.erase(in_flight);
            it = rail.refused.erase(it);
        } else if (!offered || now - since >= kOfferAgain) {
            offered = true;
            rail.current_peer = it->first;
            return &rail.current.emplace(write);
        } else {
            ++it;
        }
    }
    return nullptr;
}

std::optional<SendQueue::Choice> SendQueue::choose(std::size_t rail, Clock::time_point now,
                                                   Clock::time_point& retry_at) {
    std::array<std::optional<Choice>, kSendClasses> best;
    std::array<std::uint64_t, kSendClasses> wanted{};  // the largest chunk that waits, whether it may go now or not
    for (const auto& weak : states_) {
        auto state = weak.lock();
        if (!state) continue;
        std::array<std::optional<SendCandidate>, kSendClasses> candidates;
        state->candidates(now, served_, retry_at, candidates);
        const Lane* way = lane(state->peer, rail);
        const bool open = way != nullptr && !rails_[rail].refused.contains(state->peer) &&
                          !(way->dead && other_rail_lives(state->peer, rail));
        for (unsigned c = 0; c < kSendClasses; ++c) {
            const auto& candidate = candidates.at(c);
            if (!candidate) continue;
            wanted.at(c) = std::max(wanted.at(c), candidate->bytes);
            if (!open || !way->window.allows(candidate->bytes, now)) continue;
            std::optional<Choice>& first = best.at(c);
            if (!first || goes_before(*candidate, first->candidate)) first = Choice{state, *candidate};
        }
    }
    std::optional<Choice> chosen;
    for (unsigned c = 0; c < kSendClasses; ++c) {
        // A class that only waits for a window keeps what it is owed, but saves up no more than a chunk.
        owed_.at(c) = std::min(owed_.at(c), static_cast<double>(wanted.at(c)));
        std::optional<Choice>& first = best.at(c);
        if (first && (!chosen || owed_.at(c) >= static_cast<double>(first->candidate.bytes))) chosen = std::move(first);
    }
    return chosen;
}

const Write* SendQueue::next_chunk(std::size_t index, Clock::time_point now, Clock::time_point& retry_at) noexcept {
    std::erase_if(states_, [](const auto& weak) { return weak.expired(); });
    Rail& rail = rails_[index];
    for (;;) {
        auto chosen = choose(index, now, retry_at);
        if (!chosen) return nullptr;
        auto& [state, candidate] = *chosen;
        if (!state->take(candidate.chunk)) continue;  // it was cancelled in between
        const auto bytes = static_cast<double>(candidate.bytes);
        owed_.at(candidate.send_class) = std::max(0.0, owed_.at(candidate.send_class) - bytes);
        for (unsigned c = candidate.send_class + 1; c < kSendClasses; ++c) owed_.at(c) += bytes * floor_;
        served_ = candidate.served;

        const std::uint64_t cookie = next_cookie_++;
        rail.current = state->write_of(candidate.chunk, index, lane(state->peer, index)->on_rail, cookie);
        rail.current_peer = state->peer;
        rail.in_flight.emplace(cookie, InFlight{std::move(state), candidate.chunk, candidate.bytes, {}, false});
        return &*rail.current;
    }
}

void SendQueue::on_posted(std::size_t index) noexcept {
    const std::lock_guard lock(mutex_);
    Rail& rail = rails_[index];
    if (!rail.current) return;
    rail.refused.erase(rail.current_peer);
    if (const auto it = rail.in_flight.find(rail.current->cookie); it != rail.in_flight.end()) {
        InFlight& write = it->second;
        const auto now = Clock::now();
        write.state->on_posted(write.chunk, now);
        write.state->node.metrics.in_flight_bytes.add(write.bytes);
        write.posted = true;
        write.stamp.posted = now;
        if (Lane* way = lane(rail.current_peer, index)) write.stamp = way->window.on_posted(write.bytes, now);
    }
    rail.current.reset();
}

bool SendQueue::on_refused(std::size_t index) noexcept {
    const std::lock_guard lock(mutex_);
    Rail& rail = rails_[index];
    if (rail.current) rail.refused.insert_or_assign(rail.current_peer, Refused{*rail.current, true, Clock::now()});
    rail.current.reset();
    return true;
}

void SendQueue::on_written(std::size_t index, std::uint64_t cookie) noexcept {
    const std::lock_guard lock(mutex_);
    const auto node = rails_[index].in_flight.extract(cookie);
    if (!node) return;
    const InFlight& write = node.mapped();
    const auto now = Clock::now();
    MetricCounters& metrics = write.state->node.metrics;
    metrics.in_flight_bytes.sub(write.bytes);
    metrics.write_latency.observe(now - write.stamp.posted);
    if (Lane* way = lane(write.state->peer, index)) {
        way->window.on_delivered(write.bytes, write.stamp, now);
        forget_if_removed(write.state->peer);
    }
    write.state->on_written(write.chunk, now);
}

void SendQueue::on_write_failed(std::size_t index, std::uint64_t cookie, const std::exception_ptr& error) noexcept {
    const std::lock_guard lock(mutex_);
    Rail& rail = rails_[index];
    if (rail.current && rail.current->cookie == cookie) {
        rail.refused.erase(rail.current_peer);
        rail.current.reset();
    }
    const auto node = rail.in_flight.extract(cookie);
    if (!node) return;
    const InFlight& write = node.mapped();
    const PeerId peer = write.state->peer;
    if (write.posted && is_timeout(error)) write.state->abandon();
    if (write.posted) write.state->node.metrics.in_flight_bytes.sub(write.bytes);
    if (Lane* way = lane(peer, index)) {
        if (write.posted) way->window.on_failed(write.bytes);
        if (!way->dead && !peers_.at(peer).removed) all_live_rails_ -= 1;
        way->dead = true;
    }
    forget_if_removed(peer);
    if (other_rail_lives(peer, index))
        write.state->put_back(write.chunk, write.posted);
    else
        write.state->on_failed(write.chunk, error);
}

}  // namespace lynx
