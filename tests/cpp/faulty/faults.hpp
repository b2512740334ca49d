// Which fault befalls which write: a pure function of a seed and of what the write is, so that a run can be repeated
// whatever its threads do.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "lynx/deadline.hpp"

namespace lynx::faulty {

enum class Fault : std::uint8_t {
    kNone,
    kDrop,       ///< reported as written; nothing lands
    kDelay,      ///< lands and is reported later
    kReorder,    ///< lands and is reported after the writer's next writes
    kDuplicate,  ///< lands and arrives once more, later
    kCorrupt,    ///< one bit of what lands is not the source's
    kRefuse,     ///< "try again"
    kKill,       ///< fails, and the link to that peer is dead until the peer is added anew
};
inline constexpr std::size_t kFaults = 8;

struct FaultOptions {
    std::uint64_t seed = 1;
    /// Of each fault, by its number; at most one befalls a write, so they add up to 1 at most. What stands for kNone is
    /// not looked at.
    std::array<double, kFaults> probability{};
    /// Of delayed, reordered and doubled writes.
    Clock::duration longest_delay = std::chrono::milliseconds(20);

    /// All of them, each with this probability.
    [[nodiscard]] static FaultOptions each(double probability, std::uint64_t seed);
    [[nodiscard]] static FaultOptions only(Fault fault, double probability = 1, std::uint64_t seed = 1);
};

/// What a write is, as far as chance is concerned.
struct WriteId {
    std::uint64_t stream = 0;  ///< the number that the writer was given
    std::uint32_t tag = 0;
    std::uint64_t offset = 0;  ///< in the region
    std::uint32_t tried = 0;   ///< how often the same was tried before, since the region was registered

    auto operator<=>(const WriteId&) const = default;
};

/// Random bits for a write; `use` tells apart what is drawn for the same one.
[[nodiscard]] std::uint64_t draw(std::uint64_t seed, const WriteId& write, std::uint64_t use);

[[nodiscard]] Fault decide(const FaultOptions& options, const WriteId& write);

/// A fault that befell a write.
struct FaultEvent {
    WriteId write;
    Fault fault = Fault::kNone;

    auto operator<=>(const FaultEvent&) const = default;
};

}  // namespace lynx::faulty
