// How many bytes may be on their way to one peer over one rail: twice the bandwidth-delay product, and two chunks more.
// Bandwidth is the rate of delivery over the last intervals, delay what a chunk takes that travels alone. After
// Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016, much simplified: the provider's
// transport keeps the network itself from congestion.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lynx/deadline.hpp"

namespace lynx {

class FlightWindow {
   public:
    /// What was the state of things when a chunk was posted; comes back with its delivery.
    struct Stamp {
        Clock::time_point posted{};
        bool alone = false;
    };

    /// `pinned_bytes` other than 0: that many, and nothing is measured to change it.
    explicit FlightWindow(std::uint64_t pinned_bytes = 0) noexcept : pinned_(pinned_bytes) {}

    /// May a chunk of `bytes` go? One may always go alone.
    [[nodiscard]] bool allows(std::uint64_t bytes, Clock::time_point now) const noexcept {
        if (in_flight_ == 0) return true;
        if (pinned_ == 0 && now - measured_ > kMeasureAgain) return false;  // let it drain, so that the next goes alone
        return in_flight_ + bytes <= this->bytes(bytes);
    }

    [[nodiscard]] Stamp on_posted(std::uint64_t bytes, Clock::time_point now) noexcept {
        const Stamp stamp{now, in_flight_ == 0};
        // An interval in which nothing was on its way for long says nothing of the link.
        if (stamp.alone && now - last_delivery_ > kInterval / 10) begin_interval(now);
        in_flight_ += bytes;
        return stamp;
    }

    void on_delivered(std::uint64_t bytes, const Stamp& stamp, Clock::time_point now) noexcept {
        in_flight_ -= bytes;
        delivered_ += bytes;
        last_delivery_ = now;
        if (stamp.alone) {
            const Clock::duration took = now - stamp.posted;
            const bool expired = measured_ == Clock::time_point{} || now - measured_ > kMeasureAgain;
            delay_ = expired ? took : std::min(delay_, took);
            measured_ = now;
        }
        // Not each chunk's own rate: what buffers and a shaper's burst take at once comes in faster than any link.
        const Clock::duration elapsed = now - interval_begin_;
        if (elapsed < std::max<Clock::duration>(kInterval, 4 * delay_)) return;
        rate_before_ = rate_now_;
        rate_now_ = static_cast<double>(delivered_) / seconds(elapsed);
        begin_interval(now);
    }

    /// It will not be delivered.
    void on_failed(std::uint64_t bytes) noexcept { in_flight_ -= bytes; }

    [[nodiscard]] std::uint64_t in_flight() const noexcept { return in_flight_; }
    /// Bytes per second; 0 as long as too little was delivered to tell.
    [[nodiscard]] double rate() const noexcept { return std::max(rate_now_, rate_before_); }
    /// The window for chunks of this size.
    [[nodiscard]] std::uint64_t bytes(std::uint64_t chunk_bytes) const noexcept {
        if (pinned_ != 0) return pinned_;
        if (rate() == 0) return kFirstChunks * chunk_bytes;
        const auto product = static_cast<std::uint64_t>(2 * rate() * seconds(delay_));
        return std::min(product + kChunks * chunk_bytes, kMost);
    }

   private:
    [[nodiscard]] static double seconds(Clock::duration d) noexcept { return std::chrono::duration<double>(d).count(); }
    void begin_interval(Clock::time_point now) noexcept {
        interval_begin_ = now;
        delivered_ = 0;
    }

    static constexpr std::uint64_t kFirstChunks = 4;
    static constexpr std::uint64_t kChunks = 2;
    static constexpr std::uint64_t kMost = 256u << 20;
    static constexpr Clock::duration kInterval = std::chrono::milliseconds(50);
    static constexpr Clock::duration kMeasureAgain = std::chrono::seconds(10);

    std::uint64_t pinned_;
    std::uint64_t in_flight_ = 0;
    std::uint64_t delivered_ = 0;  // in this interval
    Clock::time_point interval_begin_{};
    Clock::time_point last_delivery_{};
    double rate_now_ = 0;     // of the last whole interval
    double rate_before_ = 0;  // of the one before
    Clock::duration delay_{};
    Clock::time_point measured_{};
};

}  // namespace lynx
