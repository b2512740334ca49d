// A thread that may never come back from the provider, and what can still be done then.
//
// shm keeps its queues behind spin locks in shared memory. A peer that is killed while it holds one leaves every
// other process that wants to write to it spinning inside libfabric, for ever. Nothing outside can end that, but it can
// be noticed, and the caller's thread must not hang too.
#pragma once

#include <atomic>
#include <exception>

#include "lynx/deadline.hpp"

namespace lynx::fabric {

/// Thrown in the thread that came back after all, but too late: its endpoint is no longer anybody's.
struct Abandoned : std::exception {};

class ProviderCalls {
   public:
    /// Runs one libfabric call of the progress thread. Throws Abandoned if abandon() succeeded meanwhile.
    template <class Call>
    auto run(Call&& call) {
        entered_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
        phase_.store(Phase::kInProvider, std::memory_order_release);
        const auto result = call();
        auto expected = Phase::kInProvider;
        if (!phase_.compare_exchange_strong(expected, Phase::kOutside)) throw Abandoned{};
        return result;
    }

    /// The thread has been inside one call for longer than any call takes.
    [[nodiscard]] bool stuck() const noexcept {
        if (phase_.load(std::memory_order_acquire) == Phase::kOutside) return false;
        const Clock::time_point entered(Clock::duration(entered_.load(std::memory_order_relaxed)));
        return Clock::now() - entered > kLongestCall;
    }

    /// If the thread is inside a call: from here on it touches nothing any more, should it ever come back.
    [[nodiscard]] bool abandon() noexcept {
        auto expected = Phase::kInProvider;
        return phase_.compare_exchange_strong(expected, Phase::kAbandoned);
    }

   private:
    enum class Phase { kOutside, kInProvider, kAbandoned };
    static constexpr auto kLongestCall = std::chrono::seconds(2);

    std::atomic<Phase> phase_ = Phase::kOutside;
    std::atomic<Clock::rep> entered_ = 0;
};

}  // namespace lynx::fabric
