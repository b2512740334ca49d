#include "stream/flight_window.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace lynx {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kChunk = 64u << 10;

// A link in virtual time: `rate` bytes per second one after the other, but for a `burst` that it takes at once after it
// was idle; and `delay` to the peer and back.
struct Link {
    double rate;
    Clock::duration delay;
    std::uint64_t burst = 0;
    FlightWindow window{};
    Clock::time_point now{1h};
    Clock::time_point busy_until = now;
    std::deque<std::pair<Clock::time_point, FlightWindow::Stamp>> in_flight{};
    std::uint64_t delivered = 0;
    std::uint64_t most_in_flight = 0;

    [[nodiscard]] Clock::duration time_of(std::uint64_t bytes) const {
        return std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(static_cast<double>(bytes) / rate));
    }

    void run_for(Clock::duration time) {
        const auto end = now + time;
        while (now < end) {
            while (window.allows(kChunk, now)) {
                const auto stamp = window.on_posted(kChunk, now);
                busy_until = std::max(busy_until, now - time_of(burst)) + time_of(kChunk);
                const auto landed = std::max(busy_until, now + 1us) + delay;
                in_flight.emplace_back(in_flight.empty() ? landed : std::max(landed, in_flight.back().first), stamp);
                most_in_flight = std::max(most_in_flight, window.in_flight());
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

TEST(FlightWindow, KeepsTheBacklogShortFromTheStartOn) {
    for (const double rate : {12.5e6, 125e6, 1.25e9})
        for (const Clock::duration delay : {50us, 1000us, 20'000us})
            for (const std::uint64_t burst : {0u, 256u << 10}) {
                Link link{rate, delay, burst};
                link.run_for(30s);  // long enough to measure again
                // What a burst adds to the first interval's rate shows once.
                const double delay_s = std::chrono::duration<double>(delay).count();
                const double of_burst = 2 * static_cast<double>(burst) / 0.05 * (delay_s + kChunk / rate);
                EXPECT_LT(static_cast<double>(link.most_in_flight), 2.3 * rate * delay_s + of_burst + 5 * kChunk)
                    << rate << " B/s, " << delay_s << " s, burst " << burst;
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

TEST(FlightWindow, ForgetsThatTheFirstChunkOfAllWaitedForTheConnection) {
    FlightWindow window;
    Clock::time_point now{1h};
    const auto first = window.on_posted(kChunk, now);
    now += 1s;
    window.on_delivered(kChunk, first, now);
    Link link{.rate = 12.5e6, .delay = 50us, .window = window, .now = now, .busy_until = now};
    link.run_for(1s);
    EXPECT_LT(link.window.bytes(kChunk), 5 * kChunk);
}

TEST(FlightWindow, LetsASmallChunkInWhereverALargeOneFits) {
    Link link{12.5e6, 50us};
    link.run_for(1s);
    while (link.window.allows(kChunk, link.now)) {
        EXPECT_TRUE(link.window.allows(kChunk / 4, link.now));
        (void)link.window.on_posted(kChunk, link.now);
    }
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
