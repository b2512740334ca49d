// How many bytes may be on their way to one peer over one rail: one and a half times the bandwidth-delay product, and
// two chunks more.
// Bandwidth is the rate of delivery over the last intervals, delay the least that a chunk has taken since some were
// last sent alone. After Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016, much
// simplified: the provider's transport keeps the network itself from congestion.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

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
        if (pinned_ == 0 && now - measured_ > measure_again_)
            return false;  // let it drain, so that the next goes alone
        return in_flight_ + bytes <= this->bytes(bytes);
    }

    [[nodiscard]] Stamp on_posted(std::uint64_t bytes, Clock::time_point now) noexcept {
        const Stamp stamp{now, in_flight_ == 0};
        // An interval in which nothing was on its way for long says nothing of the link.
        if (stamp.alone && now - last_delivery_ > kInterval / 10) begin_interval(now);
        in_flight_ += bytes;
        largest_now_ = std::max(largest_now_, bytes);
        return stamp;
    }

    void on_delivered(std::uint64_t bytes, const Stamp& stamp, Clock::time_point now) noexcept {
        in_flight_ -= bytes;
        delivered_ += bytes;
        last_delivery_ = now;
        measure_delay(now - stamp.posted, stamp.alone, now);
        // Not each chunk's own rate: what buffers and a shaper's burst take at once comes in faster than any link.
        const Clock::duration elapsed = now - interval_begin_;
        if (elapsed < std::max<Clock::duration>(kInterval, 4 * delay_)) return;
        largest_before_ = std::exchange(largest_now_, 0);
        rate_before_ = rate_now_;
        rate_now_ = static_cast<double>(delivered_) / seconds(elapsed);
        begin_interval(now);
    }

    /// It will not be delivered.
    void on_failed(std::uint64_t bytes) noexcept { in_flight_ -= bytes; }

    [[nodiscard]] std::uint64_t in_flight() const noexcept { return in_flight_; }
    /// Bytes per second; 0 as long as too little was delivered to tell.
    [[nodiscard]] double rate() const noexcept { return std::max(rate_now_, rate_before_); }
    /// The window, for a chunk of this size. The chunks that it is made of are the largest of late, whatever this one
    /// is: otherwise large ones of a lower class would fit in where small ones of a higher class do not.
    [[nodiscard]] std::uint64_t bytes(std::uint64_t chunk_bytes) const noexcept {
        if (pinned_ != 0) return pinned_;
        const std::uint64_t chunk = std::max({chunk_bytes, largest_now_, largest_before_});
        if (rate() == 0) return kFirstChunks * chunk;
        const auto product = static_cast<std::uint64_t>(kProducts * rate() * seconds(delay_));
        return std::min(product + kChunks * chunk, kMost);
    }

   private:
    void measure_delay(Clock::duration took, bool alone, Clock::time_point now) noexcept {
        if (alone && now - measured_ > measure_again_) {
            // More than one, since any may have met a stall.
            delay_ = alone_ == 0 ? took : std::min(delay_, took);
            if (++alone_ < kAlone) return;
            alone_ = 0;
            measured_ = now;
            // Soon again at first: the first chunk of all has waited for the provider's connection.
            measure_again_ = std::min(2 * measure_again_, kMeasureAgain);
        } else {
            delay_ = std::min(delay_, took);
        }
    }
    [[nodiscard]] static double seconds(Clock::duration d) noexcept { return std::chrono::duration<double>(d).count(); }
    void begin_interval(Clock::time_point now) noexcept {
        interval_begin_ = now;
        delivered_ = 0;
    }

    static constexpr std::uint64_t kFirstChunks = 4;
    static constexpr double kProducts = 1.5;
    static constexpr std::uint64_t kChunks = 2;
    static constexpr std::uint64_t kMost = 256u << 20;
    static constexpr Clock::duration kInterval = std::chrono::milliseconds(50);
    static constexpr unsigned kAlone = 3;
    static constexpr Clock::duration kMeasureSoon = std::chrono::milliseconds(25);
    static constexpr Clock::duration kMeasureAgain = std::chrono::seconds(10);

    std::uint64_t pinned_;
    std::uint64_t in_flight_ = 0;
    std::uint64_t delivered_ = 0;  // in this interval
    Clock::time_point interval_begin_{};
    Clock::time_point last_delivery_{};
    double rate_now_ = 0;               // of the last whole interval
    double rate_before_ = 0;            // of the one before
    std::uint64_t largest_now_ = 0;     // chunk, since the last whole interval
    std::uint64_t largest_before_ = 0;  // and in that
    Clock::duration delay_{};
    unsigned alone_ = 0;  // of kAlone chunks that are to travel alone, how many have
    Clock::time_point measured_{};
    Clock::duration measure_again_ = kMeasureSoon;  // after the last time; longer and longer
};

}  // namespace lynx
