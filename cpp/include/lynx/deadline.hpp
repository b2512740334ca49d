// Time: one clock, and the moment by which a wait has to end. No wait in Lynx is without one.
#pragma once

#include <chrono>

namespace lynx {

using Clock = std::chrono::steady_clock;

class Deadline {
   public:
    explicit constexpr Deadline(Clock::time_point at) noexcept : at_(at) {}
    [[nodiscard]] static Deadline after(Clock::duration d) noexcept { return Deadline(Clock::now() + d); }

    [[nodiscard]] Clock::time_point at() const noexcept { return at_; }
    [[nodiscard]] bool passed() const noexcept { return Clock::now() >= at_; }
    /// What is left, never negative.
    [[nodiscard]] Clock::duration left() const noexcept {
        const auto now = Clock::now();
        return now < at_ ? at_ - now : Clock::duration::zero();
    }

   private:
    Clock::time_point at_;
};

}  // namespace lynx
