#include "stream/flight_window.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace lynx {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kChunk = 64u << 10;

// A link in virtual time: `rate` bytes per second one after the other, and `delay` to the peer and back.
struct Link {
    double rate;
    Clock::duration delay;
    FlightWindow window{};
    Clock::time_point now{1h};
    Clock::time_point busy_until{};
    std::deque<std::pair<Clock::time_point, FlightWindow::Stamp>> in_flight{};
    std::uint64_t delivered = 0;

    void run_for(Clock::duration time) {
        const auto end = now + time;
        while (now < end) {
            while (window.allows(kChunk, now)) {
                const auto stamp = window.on_posted(kChunk, now);
                busy_until = std::max(busy_until, now) +
                             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kChunk / rate));
                in_flight.emplace_back(busy_until + delay, stamp);
            }
            now = in_flight.front().first;
            window.on_delivered(kChunk, in_flight.front().second, now);
            in_flight.pop_front();
            delivered += kChunk;
        }
    }
};

TEST(FlightWindow, FillsALinkOfAnyRateAndDelay) {
    for (const double rate : {12.5e6, 125e6, 1.25e9})
        for (const Clock::duration delay : {0us, 50us, 1000us, 20'000us}) {
            Link link{rate, delay};
            link.run_for(2s);
            const std::uint64_t before = link.delivered;
            const auto began = link.now;
            link.run_for(5s);
            const double got =
                static_cast<double>(link.delivered - before) / std::chrono::duration<double>(link.now - began).count();
            EXPECT_GT(got, 0.95 * rate) << rate << " B/s, " << std::chrono::duration<double>(delay).count() << " s";
        }
}

TEST(FlightWindow, KeepsTheBacklogShort) {
    for (const double rate : {12.5e6, 125e6, 1.25e9})
        for (const Clock::duration delay : {50us, 1000us, 20'000us}) {
            Link link{rate, delay};
            link.run_for(30s);  // long enough to measure again
            const double product = rate * std::chrono::duration<double>(delay).count();
            EXPECT_LT(static_cast<double>(link.window.bytes(kChunk)), 2.2 * product + 4.5 * kChunk);
        }
}

TEST(FlightWindow, FollowsALinkThatBecomesSlower) {
    Link link{1.25e9, 20ms};
    link.run_for(3s);
    EXPECT_GT(link.window.rate(), 1e9);
    link.rate = 12.5e6;
    link.run_for(20s);
    EXPECT_LT(link.window.rate(), 20e6);
}

TEST(FlightWindow, LetsAChunkGoAloneHoweverSmallTheWindow) {
    FlightWindow window(10);
    EXPECT_TRUE(window.allows(1u << 20, Clock::now()));
    (void)window.on_posted(1u << 20, Clock::now());
    EXPECT_FALSE(window.allows(1, Clock::now()));
    window.on_failed(1u << 20);
    EXPECT_TRUE(window.allows(1, Clock::now()));
}

}  // namespace
}  // namespace lynx
