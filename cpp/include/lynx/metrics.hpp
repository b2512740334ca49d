// What a node has counted, and when the parts of a transfer moved. All of it is always on: a few relaxed additions a
// write. Everything here is a value: what was read stays as it was.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "lynx/deadline.hpp"
#include "lynx/export.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx {

/// How long something took, counted in powers of two: 1.02 us (2^10 ns), 2.05 us, ... 68.7 s, and beyond.
struct LYNX_API Durations {
    static constexpr std::size_t kBuckets = 28;
    /// Those of bucket i were shorter than upper_bound(i), and not shorter than the one before; the last has no bound.
    std::array<std::uint64_t, kBuckets> counts{};
    std::chrono::nanoseconds sum{};

    [[nodiscard]] static constexpr std::chrono::nanoseconds upper_bound(std::size_t bucket) noexcept {
        return bucket + 1 < kBuckets ? std::chrono::nanoseconds(std::int64_t{1} << (bucket + 10))
                                     : std::chrono::nanoseconds::max();
    }
    [[nodiscard]] std::uint64_t count() const noexcept;

    friend bool operator==(const Durations&, const Durations&) = default;
};

/// Ended transfers by how they ended.
struct Outcomes {
    std::uint64_t done = 0;       ///< every chunk was written, or published
    std::uint64_t failed = 0;     ///< by an error
    std::uint64_t cancelled = 0;  ///< given up by either side before that

    friend bool operator==(const Outcomes&, const Outcomes&) = default;
};

/// Since the node was made, over all its transfers, peers and rails. Counters never fall; gauges say what is at the
/// moment. Each number is right by itself; two of them may be some writes apart. Goodput is the growth of the bytes
/// over a time. Arrays are by tier (0 anchor, 1 residual, 2 exact) if nothing else is said.
struct NodeMetrics {
    template <class T>
    using ByTier = std::array<T, kTiers>;

    // The sending side. What is sent again counts again.
    ByTier<std::uint64_t> sent_bytes{};  ///< of writes that the provider has completed
    ByTier<std::uint64_t> sent_chunks{};
    std::uint64_t posted_writes = 0;
    std::uint64_t refused_writes = 0;  ///< "try again", said by the provider
    std::uint64_t failed_writes = 0;   ///< ended by an error; on another rail they may yet succeed
    std::uint64_t resent_chunks = 0;   ///< queued once more: lost, damaged, or on a dead rail
    std::int64_t in_flight_bytes = 0;  ///< gauge: posted, not completed
    ByTier<Durations> queue_wait;      ///< by SendClass: a chunk's wait from put() to the provider
    Durations write_latency;           ///< from the provider's acceptance of a write to its completion
    ByTier<Durations> lateness;        ///< chunks of transfers with a deadline: completed so long after it, or 0
    Outcomes sent;

    // The receiving side.
    ByTier<std::uint64_t> received_bytes{};  ///< checked; each chunk once
    ByTier<std::uint64_t> received_chunks{};
    std::uint64_t damaged_chunks = 0;    ///< wrong checksum
    std::uint64_t duplicate_chunks = 0;  ///< came once more
    std::uint64_t stray_writes = 0;      ///< for a slot that nobody holds any more, or a chunk that it does not have
    std::uint64_t asked_chunks = 0;      ///< asked for again
    ByTier<Durations> part_time;  ///< from a slot's grant to the tier's publication, with all before it, for all layers
    Outcomes received;

    // The node.
    std::uint64_t heartbeats_missed = 0;
    std::uint64_t reconnects = 0;
    std::uint64_t failed_handshakes = 0;
    std::uint64_t arena_bytes = 0;
    std::uint64_t arena_used_bytes = 0;  ///< gauge
    std::uint64_t slots_taken = 0;       ///< gauge
    std::uint64_t slots_held = 0;        ///< gauge: of ended transfers, kept since a late write may land there
    std::uint64_t held_bytes = 0;        ///< gauge: theirs
    std::uint64_t live_rails = 0;        ///< gauge: ways to peers, each over one rail, that have not died

    friend bool operator==(const NodeMetrics&, const NodeMetrics&) = default;
};

/// When one part of one tensor moved. The times are of Clock, which on Linux all processes of a machine share.
struct PartTimes {
    std::uint32_t tensor = 0;  ///< in the manifest
    unsigned part = 0;
    Clock::time_point first;  ///< its first chunk was posted, or arrived
    Clock::time_point last;   ///< the last so far was written or, if complete, the part was published
    std::uint64_t bytes = 0;  ///< written, or arrived and checked; each chunk once
    std::uint32_t chunks = 0;
    std::uint32_t resent = 0;  ///< chunks sent, or asked for, again
    bool complete = false;
};

}  // namespace lynx
