// How many bytes may be on their way to one peer over one rail: twice the bandwidth-delay product, and two chunks more.
// Bandwidth is the best rate of delivery seen of late, delay what a chunk takes that travels alone. After Cardwell et al., "BBR: Congestion-Based Congestion
// Control", ACM Queue 14(5), 2016, much simplified: the provider's transport keeps the network itself from congestion.
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
        std::uint64_t delivered = 0;
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
        const Stamp stamp{now, delivered_, in_flight_ == 0};
        in_flight_ += bytes;
        return stamp;
    }

    void on_delivered(std::uint64_t bytes, const Stamp& stamp, Clock::time_point now) noexcept {
        in_flight_ -= bytes;
        delivered_ += bytes;
        const double took = std::max(seconds(now - stamp.posted), 1e-6);
        if (now - bucket_begin_ > kBucket) {
            best_before_ = best_;
            best_ = 0;
            bucket_begin_ = now;
        }
        best_ = std::max(best_, static_cast<double>(delivered_ - stamp.delivered) / took);
        if (!stamp.alone) return;
        const bool expired = measured_ == Clock::time_point{} || now - measured_ > kMeasureAgain;
        delay_ = expired ? took : std::min(delay_, took);
        measured_ = now;
    }

    /// It will not be delivered.
    void on_failed(std::uint64_t bytes) noexcept { in_flight_ -= bytes; }

    [[nodiscard]] std::uint64_t in_flight() const noexcept { return in_flight_; }
    /// Bytes per second; 0 as long as nothing has been delivered.
    [[nodiscard]] double rate() const noexcept { return std::max(best_, best_before_); }
    /// The window for chunks of this size.
    [[nodiscard]] std::uint64_t bytes(std::uint64_t chunk_bytes) const noexcept {
        if (pinned_ != 0) return pinned_;
        const auto product = static_cast<std::uint64_t>(2 * rate() * delay_);
        return std::min(product + kChunks * chunk_bytes, kMost);
    }

   private:
    [[nodiscard]] static double seconds(Clock::duration d) noexcept { return std::chrono::duration<double>(d).count(); }

    static constexpr std::uint64_t kChunks = 2;
    static constexpr std::uint64_t kMost = 256u << 20;
    static constexpr Clock::duration kBucket = std::chrono::milliseconds(500);
    static constexpr Clock::duration kMeasureAgain = std::chrono::seconds(10);

    std::uint64_t pinned_;
    std::uint64_t in_flight_ = 0;
    std::uint64_t delivered_ = 0;
    double best_ = 0;         // of this bucket of time
    double best_before_ = 0;  // of the one before
    Clock::time_point bucket_begin_{};
    double delay_ = 0;
    Clock::time_point measured_{};
};

}  // namespace lynx
