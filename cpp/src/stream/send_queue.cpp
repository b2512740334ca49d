#include "stream/send_queue.hpp"

#include <algorithm>

namespace lynx {

void SendQueue::add(const std::shared_ptr<PlaneSender::State>& state) {
    const std::lock_guard lock(mutex_);
    states_.push_back(state);
}

const Write* SendQueue::next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept {
    const std::lock_guard lock(mutex_);
    if (const Write* write = next_refused()) return write;
    if (const Write* write = next_chunk(now, retry_at)) return write;
    for (auto& [peer, refused] : refused_) refused.offered = false;
    return nullptr;
}

const Write* SendQueue::next_refused() noexcept {
    for (auto it = refused_.begin(); it != refused_.end();) {
        auto& [write, offered] = it->second;
        const auto in_flight = in_flight_.find(write.cookie);
        if (in_flight->second.state->has_ended()) {
            in_flight->second.state->drop(in_flight->second.chunk);
            in_flight_.erase(in_flight);
            it = refused_.erase(it);
        } else if (!offered) {
            offered = true;
            return &current_.emplace(write);
        } else {
            ++it;
        }
    }
    return nullptr;
}

const Write* SendQueue::next_chunk(Clock::time_point now, Clock::time_point& retry_at) noexcept {
    std::erase_if(states_, [](const auto& weak) { return weak.expired(); });
    for (;;) {
        std::shared_ptr<PlaneSender::State> best;
        unsigned best_part = kMaxParts;
        for (const auto& weak : states_) {
            auto state = weak.lock();
            if (!state || refused_.contains(state->peer)) continue;
            const auto part = state->candidate(now, retry_at);
            if (part && *part < best_part) {
                best = std::move(state);
                best_part = *part;
            }
        }
        if (!best) return nullptr;
        const auto chunk = best->take(best_part);
        if (!chunk) continue;  // it was cancelled in between

        const std::uint64_t cookie = next_cookie_++;
        current_ = best->write_of(*chunk, cookie);
        in_flight_.emplace(cookie, InFlight{std::move(best), *chunk});
        return &*current_;
    }
}

void SendQueue::on_posted() noexcept {
    const std::lock_guard lock(mutex_);
    if (!current_) return;
    refused_.erase(current_->peer);
    if (const auto it = in_flight_.find(current_->cookie); it != in_flight_.end()) it->second.state->on_posted();
    current_.reset();
}

bool SendQueue::on_refused() noexcept {
    const std::lock_guard lock(mutex_);
    if (current_) refused_.insert_or_assign(current_->peer, Refused{*current_, true});
    current_.reset();
    return true;
}

void SendQueue::on_written(std::uint64_t cookie) noexcept {
    const std::lock_guard lock(mutex_);
    if (const auto node = in_flight_.extract(cookie)) node.mapped().state->on_written(node.mapped().chunk);
}

void SendQueue::on_write_failed(std::uint64_t cookie, const std::exception_ptr& error) noexcept {
    const std::lock_guard lock(mutex_);
    if (current_ && current_->cookie == cookie) {
        refused_.erase(current_->peer);
        current_.reset();
    }
    if (const auto node = in_flight_.extract(cookie)) node.mapped().state->on_failed(node.mapped().chunk, error);
}

}  // namespace lynx
