// When which part of a transfer was there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "lynx/deadline.hpp"
#include "lynx/plane_receiver.hpp"

inline constexpr unsigned kParts = 2;  ///< of this program's caches: anchor and residual

/// Watches a receiver on a thread of its own and prints a line for each layer's part as it becomes complete, so that
/// decoding in between does not blur the times. The receiver outlives it.
class Arrivals {
   public:
    Arrivals(const lynx::PlaneReceiver& receiver, std::uint32_t layers, lynx::Clock::time_point offered);

    /// Returns once every arrival is printed; all of it has been waited for on the receiver before.
    void join() { thread_.join(); }
    /// Milliseconds from the offer until all layers had this part. Valid after join().
    [[nodiscard]] double complete_ms(unsigned part) const { return complete_ms_.at(part).value(); }

   private:
    void watch(const std::stop_token& stop);
    /// Prints what is complete and was not before. True once everything is.
    bool look();

    const lynx::PlaneReceiver& receiver_;
    lynx::Clock::time_point offered_;
    std::array<std::vector<bool>, kParts> seen_;
    std::array<std::optional<double>, kParts> complete_ms_;
    std::jthread thread_;  // last: stopped and joined before what it uses goes
};

/// One line of the timeline.
void print_event(double ms, const char* what);
[[nodiscard]] double ms_since(lynx::Clock::time_point start);
