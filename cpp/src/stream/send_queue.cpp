#include "stream/send_queue.hpp"

#include <algorithm>

namespace lynx {

void SendQueue::add(const std::shared_ptr<PlaneSender::State>& state) {
    const std::lock_guard lock(mutex_);
    states_.push_back(state);
}

const Write* SendQueue::next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept {
    const std::lock_guard lock(mutex_);
    if (has_current_) return &current_;  // the provider said "again"

    std::erase_if(states_, [](const auto& weak) { return weak.expired(); });
    for (;;) {
        std::shared_ptr<PlaneSender::State> best;
        unsigned best_part = kMaxParts;
        for (const auto& weak : states_) {
            auto state = weak.lock();
            if (!state) continue;
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
        has_current_ = true;
        in_flight_.emplace(cookie, InFlight{std::move(best), *chunk});
        return &current_;
    }
}

void SendQueue::on_posted() noexcept {
    const std::lock_guard lock(mutex_);
    has_current_ = false;
    if (const auto it = in_flight_.find(current_.cookie); it != in_flight_.end()) it->second.state->on_posted();
}

void SendQueue::on_written(std::uint64_t cookie) noexcept {
    const std::lock_guard lock(mutex_);
    if (const auto node = in_flight_.extract(cookie)) node.mapped().state->on_written(node.mapped().chunk);
}

void SendQueue::on_write_failed(std::uint64_t cookie, const std::exception_ptr& error) noexcept {
    const std::lock_guard lock(mutex_);
    if (has_current_ && current_.cookie == cookie) has_current_ = false;
    if (const auto node = in_flight_.extract(cookie)) node.mapped().state->on_failed(node.mapped().chunk, error);
}

}  // namespace lynx
