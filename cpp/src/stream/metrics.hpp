// The counters behind NodeMetrics. Any thread adds, without a lock; nothing is ordered by them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>

#include "lynx/metrics.hpp"

namespace lynx {

class Counter {
   public:
    void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
};

class Gauge {
   public:
    void add(std::uint64_t n) noexcept { value_.fetch_add(static_cast<std::int64_t>(n), std::memory_order_relaxed); }
    void sub(std::uint64_t n) noexcept { value_.fetch_sub(static_cast<std::int64_t>(n), std::memory_order_relaxed); }
    [[nodiscard]] std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::int64_t> value_{0};
};

class Histogram {
   public:
    /// What is below zero counts as zero.
    void observe(Clock::duration d) noexcept {
        const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(std::chrono::nanoseconds(d).count(), 0));
        const auto bucket =
            std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(ns >> 10)), counts_.size() - 1);
        counts_[bucket].add();
        sum_ns_.add(ns);
    }
    [[nodiscard]] Durations read() const noexcept;

   private:
    std::array<Counter, Durations::kBuckets> counts_;
    Counter sum_ns_;
};

struct OutcomeCounters {
    Counter done, failed, cancelled;

    /// A transfer ended by `cause`. One of which the whole was through by then is done, if it was only given up, as
    /// every sender is in the end. Not for the data path: looks at the exception.
    void add(const std::exception_ptr& cause, bool whole) noexcept;
    [[nodiscard]] Outcomes read() const noexcept { return {done.value(), failed.value(), cancelled.value()}; }
};

/// One a node; the members are those of NodeMetrics.
struct MetricCounters {
    template <class T>
    using ByTier = std::array<T, kTiers>;

    ByTier<Counter> sent_bytes, sent_chunks;
    Counter posted_writes, refused_writes, failed_writes, resent_chunks;
    Gauge in_flight_bytes;
    ByTier<Histogram> queue_wait;  // by SendClass
    Histogram write_latency;
    ByTier<Histogram> lateness;
    OutcomeCounters sent;

    ByTier<Counter> received_bytes, received_chunks;
    Counter damaged_chunks, duplicate_chunks, stray_writes, asked_chunks;
    ByTier<Histogram> part_time;
    OutcomeCounters received;

    Counter heartbeats_missed, reconnects, failed_handshakes;

    /// Without what others know: arena, slots, rails.
    [[nodiscard]] NodeMetrics read() const noexcept;
};

}  // namespace lynx
