#include "arrivals.hpp"

#include <chrono>
#include <cstdio>
#include <string>

#include "lynx/error.hpp"

namespace {

constexpr std::array<const char*, kParts> kPartNames{"anchor", "residual"};
constexpr std::array<const char*, kParts> kCompleteEvents{"anchor complete", "all complete"};

}  // namespace

Arrivals::Arrivals(const lynx::PlaneReceiver& receiver, std::uint32_t layers, lynx::Clock::time_point offered)
    : receiver_(receiver), offered_(offered) {
    for (auto& part : seen_) part.resize(layers);
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void Arrivals::watch(const std::stop_token& stop) {
    try {
        std::uint64_t number = 0;
        while (!look() && !stop.stop_requested()) {
            // Each tensor's part that is completed makes a new revision; the deadline is there to hear of a stop.
            number = receiver_.wait_newer(number, lynx::Deadline::after(std::chrono::milliseconds(100))).number;
        }
    } catch (const lynx::Error&) {
        // The transfer has ended early. Whoever waits for its data hears the same error, and reports it.
    }
}

bool Arrivals::look() {
    const double now = ms_since(offered_);
    for (unsigned part = 0; part < kParts; ++part) {
        auto& seen = seen_.at(part);
        for (std::uint32_t layer = 0; layer < seen.size(); ++layer) {
            if (seen[layer] || !receiver_.ready(layer, part)) continue;
            seen[layer] = true;
            print_event(
                now, (std::string(kPartNames.at(part)) + " of layer " + std::to_string(layer) + " complete").c_str());
        }
        if (!complete_ms_.at(part) && receiver_.ready(part)) {
            complete_ms_.at(part) = now;
            print_event(now, kCompleteEvents.at(part));
        }
    }
    return receiver_.ready(kParts - 1);
}

void print_event(double ms, const char* what) {
    std::printf("%9.1f ms  %s\n", ms, what);
    std::fflush(stdout);  // as it happens, also through a pipe
}

double ms_since(lynx::Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(lynx::Clock::now() - start).count();
}
