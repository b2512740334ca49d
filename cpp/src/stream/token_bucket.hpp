// A rate in bytes per second. A chunk may be taken whenever the bucket is not in debt and may put it there, so
// that the long-run rate is exact whatever the chunk size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lynx/deadline.hpp"

namespace lynx {

class TokenBucket {
   public:
    /// 0 bytes per second: no limit.
    explicit TokenBucket(std::uint64_t bytes_per_second, Clock::time_point now = Clock::now())
        : rate_(static_cast<double>(bytes_per_second)), updated_(now) {}

    /// When the next chunk may go; in the past or `now` if it may go at once.
    [[nodiscard]] Clock::time_point ready_at(Clock::time_point now) {
        if (rate_ == 0) return now;
        const double gained = std::chrono::duration<double>(now - updated_).count() * rate_;
        balance_ = std::min(balance_ + gained, rate_ * kBurstSeconds);
        updated_ = now;
        if (balance_ >= 0) return now;
        return now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(-balance_ / rate_)) +
               std::chrono::microseconds(1);  // rounded up: never a wake-up just before it is due
    }
    void take(std::uint64_t bytes) {
        if (rate_ != 0) balance_ -= static_cast<double>(bytes);
    }

   private:
    // What an idle link may save up: enough to ride out a scheduler that gives both cores to others for a turn or two,
    // too little to be seen as a burst.
    static constexpr double kBurstSeconds = 0.010;

    double rate_;
    double balance_ = 0;
    Clock::time_point updated_;
};

}  // namespace lynx
