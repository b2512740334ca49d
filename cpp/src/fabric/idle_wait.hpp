// How the progress thread waits: busy while there was progress just now, then in short sleeps that grow.
//
// The same for every provider, on purpose. Wait objects (FI_WAIT_FD and the like) would save the polling for
// tcp and verbs, but shm, rxm and efa make progress only when somebody polls, on the receiving side too; and
// two ways to wait are two ways to miss a wake-up. The price is bounded: see kLongestSleep.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "lynx/deadline.hpp"

namespace lynx::fabric {

class IdleWait {
   public:
    /// Ends the current wait, or the next one.
    void wake() noexcept {
        {
            const std::scoped_lock lock(mutex_);
            woken_ = true;
        }
        changed_.notify_one();
    }

    /// Something happened: be busy again.
    void progressed(Clock::time_point now) noexcept {
        last_progress_ = now;
        sleep_ = kFirstSleep;
    }

    /// Waits a little, not beyond `until`. `in_flight`: completions are due, so keep the sleeps short.
    void wait(Clock::time_point now, Clock::time_point until, bool in_flight) {
        const auto idle = now - last_progress_;
        if (idle < kBusyFor) {
            std::this_thread::yield();  // lets the other side run where cores are few
            return;
        }
        const auto longest = in_flight          ? kLongestSleepInFlight
                             : idle < kRecently ? kLongestSleepRecently
                                                : kLongestSleep;
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, std::min(now + std::min(sleep_, longest), until), [this] { return woken_; });
        if (woken_) {
            woken_ = false;
            sleep_ = kFirstSleep;
        } else {
            sleep_ = std::min(2 * sleep_, longest);
        }
    }

   private:
    using us = std::chrono::microseconds;
    /// Longer than a write of 1 MiB takes on a fast link: there is no progress to be seen in the middle of one, and a
    /// reader that sleeps through it lets the link fall dry (0.8 of the goodput with 50 us).
    static constexpr Clock::duration kBusyFor = us(300);
    static constexpr Clock::duration kFirstSleep = us(20);
    static constexpr Clock::duration kLongestSleepInFlight = us(100);
    static constexpr Clock::duration kLongestSleepRecently = us(200);
    /// After kRecently without anything, an arrival may go unnoticed for this long.
    static constexpr Clock::duration kLongestSleep = us(1000);
    static constexpr Clock::duration kRecently = std::chrono::milliseconds(100);

    std::mutex mutex_;
    std::condition_variable changed_;
    bool woken_ = false;
    Clock::time_point last_progress_{};
    Clock::duration sleep_ = kFirstSleep;
};

}  // namespace lynx::fabric
