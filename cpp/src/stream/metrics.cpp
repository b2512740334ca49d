#include "stream/metrics.hpp"

#include <numeric>

#include "lynx/error.hpp"
#include "lynx/plane_sender.hpp"

namespace lynx {

static_assert(kSendClasses == kTiers, "queue_wait is by class");
static_assert(Durations::upper_bound(Durations::kBuckets - 2) == std::chrono::nanoseconds(std::int64_t{1} << 36));

namespace {

std::array<std::uint64_t, kTiers> read(const std::array<Counter, kTiers>& counters) noexcept {
    std::array<std::uint64_t, kTiers> values{};
    std::ranges::transform(counters, values.begin(), &Counter::value);
    return values;
}

std::array<Durations, kTiers> read(const std::array<Histogram, kTiers>& histograms) noexcept {
    std::array<Durations, kTiers> values{};
    std::ranges::transform(histograms, values.begin(), &Histogram::read);
    return values;
}

}  // namespace

std::uint64_t Durations::count() const noexcept {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

Durations Histogram::read() const noexcept {
    Durations durations;
    std::ranges::transform(counts_, durations.counts.begin(), &Counter::value);
    durations.sum = std::chrono::nanoseconds(static_cast<std::int64_t>(sum_ns_.value()));
    return durations;
}

void OutcomeCounters::add(const std::exception_ptr& cause, bool whole) noexcept {
    try {
        std::rethrow_exception(cause);
    } catch (const Cancelled&) {
        (whole ? done : cancelled).add();
    } catch (...) {
        failed.add();
    }
}

NodeMetrics MetricCounters::read() const noexcept {
    NodeMetrics m;
    m.sent_bytes = lynx::read(sent_bytes);
    m.sent_chunks = lynx::read(sent_chunks);
    m.posted_writes = posted_writes.value();
    m.refused_writes = refused_writes.value();
    m.failed_writes = failed_writes.value();
    m.resent_chunks = resent_chunks.value();
    m.in_flight_bytes = in_flight_bytes.value();
    m.queue_wait = lynx::read(queue_wait);
    m.write_latency = write_latency.read();
    m.lateness = lynx::read(lateness);
    m.sent = sent.read();
    m.received_bytes = lynx::read(received_bytes);
    m.received_chunks = lynx::read(received_chunks);
    m.damaged_chunks = damaged_chunks.value();
    m.duplicate_chunks = duplicate_chunks.value();
    m.stray_writes = stray_writes.value();
    m.asked_chunks = asked_chunks.value();
    m.part_time = lynx::read(part_time);
    m.received = received.read();
    m.heartbeats_missed = heartbeats_missed.value();
    m.reconnects = reconnects.value();
    m.failed_handshakes = failed_handshakes.value();
    return m;
}

}  // namespace lynx
