// One end of what is measured, and the words in which the driver speaks to it.
//
// The driver writes commands to the standard input, a line each: a word, then its arguments. Answers are JSON objects,
// a line each. A receiver says {"waiting":true} to a command once it is ready for the sender's. Times are nanoseconds
// of the monotonic clock, which all processes of a machine share, in network namespaces too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "lynx/deadline.hpp"

namespace lynx::bench {

/// No step of a bench takes longer; the driver gives up earlier.
inline constexpr auto kLongest = std::chrono::seconds(120);

/// What one goodput run moves: `total_bytes` in writes of `chunk_bytes`.
struct Load {
    std::size_t chunk_bytes = 0;
    std::size_t total_bytes = 0;
};

/// Of the requests that share a pair of nodes: anchors one after another, while `backlogs` residuals are on their way.
struct Contention {
    std::size_t backlogs = 0;
    std::size_t backlog_bytes = 0;  ///< of each
    std::size_t anchor_bytes = 0;
    std::size_t anchors = 0;
};

/// Writes one answer, without its braces: `"key":value` pairs.
using Answer = std::function<void(const std::string& fields)>;

/// The sending or the receiving end. One thread.
class End {
   public:
    virtual ~End() = default;
    /// What the other end's connect() needs; one word.
    [[nodiscard]] virtual std::string endpoint() = 0;
    virtual void connect(const std::string& endpoint) = 0;
    virtual void goodput(const Load& load, const Answer& answer) = 0;
    /// `count` round trips of one write each way.
    virtual void latency(std::size_t bytes, std::size_t count, const Answer& answer) = 0;
    virtual void contend(const Contention& contention, const Answer& answer) = 0;
};

[[nodiscard]] inline std::int64_t nanoseconds(Clock::time_point at) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

[[nodiscard]] inline std::string field(const std::string& key, std::int64_t value) {
    return "\"" + key + "\":" + std::to_string(value);
}

}  // namespace lynx::bench
