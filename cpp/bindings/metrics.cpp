#include "lynx/metrics.hpp"

#include <nanobind/stl/array.h>

#include "bindings.hpp"

namespace lynx::bindings {

namespace {

double seconds(std::chrono::nanoseconds d) {
    return std::chrono::duration<double>(d).count();
}

nb::tuple bounds_s() {
    nb::list bounds;
    for (std::size_t i = 0; i + 1 < Durations::kBuckets; ++i) bounds.append(seconds(Durations::upper_bound(i)));
    return nb::tuple(bounds);
}

}  // namespace

void bind_metrics(nb::module_& m) {
    m.attr("DURATION_BOUNDS_S") = bounds_s();

    nb::class_<Durations>(m, "Durations", "How long something took, counted in powers of two.")
        .def_ro("counts", &Durations::counts,
                "Those of bucket i were shorter than DURATION_BOUNDS_S[i] and not shorter than the bound before; the "
                "last has no bound.")
        .def_prop_ro("count", &Durations::count)
        .def_prop_ro("sum_s", [](const Durations& d) { return seconds(d.sum); });

    nb::class_<Outcomes>(m, "Outcomes", "Ended transfers by how they ended.")
        .def_ro("done", &Outcomes::done)
        .def_ro("failed", &Outcomes::failed)
        .def_ro("cancelled", &Outcomes::cancelled);

    nb::class_<NodeMetrics>(m, "NodeMetrics",
                            "What a node has counted since it was made. Lists are by tier (0 anchor, 1 residual, 2 "
                            "exact) if nothing else is said.")
        .def_ro("sent_bytes", &NodeMetrics::sent_bytes, "Of writes that the provider has completed.")
        .def_ro("sent_chunks", &NodeMetrics::sent_chunks)
        .def_ro("posted_writes", &NodeMetrics::posted_writes)
        .def_ro("refused_writes", &NodeMetrics::refused_writes, "\"Try again\", said by the provider.")
        .def_ro("failed_writes", &NodeMetrics::failed_writes)
        .def_ro("resent_chunks", &NodeMetrics::resent_chunks)
        .def_ro("in_flight_bytes", &NodeMetrics::in_flight_bytes, "Posted, not completed, at the moment.")
        .def_ro("queue_wait", &NodeMetrics::queue_wait, "By SendClass: from put() to the provider.")
        .def_ro("write_latency", &NodeMetrics::write_latency)
        .def_ro("lateness", &NodeMetrics::lateness, "Chunks of transfers with a deadline: completed so long after it.")
        .def_ro("sent", &NodeMetrics::sent)
        .def_ro("received_bytes", &NodeMetrics::received_bytes, "Checked; each chunk once.")
        .def_ro("received_chunks", &NodeMetrics::received_chunks)
        .def_ro("damaged_chunks", &NodeMetrics::damaged_chunks, "Of a wrong checksum.")
        .def_ro("duplicate_chunks", &NodeMetrics::duplicate_chunks)
        .def_ro("stray_writes", &NodeMetrics::stray_writes,
                "For a slot that nobody holds any more, or a chunk that it does not have.")
        .def_ro("asked_chunks", &NodeMetrics::asked_chunks, "Asked for again.")
        .def_ro("part_time", &NodeMetrics::part_time,
                "From a slot's grant to the publication of the tier, for all layers.")
        .def_ro("received", &NodeMetrics::received)
        .def_ro("heartbeats_missed", &NodeMetrics::heartbeats_missed)
        .def_ro("reconnects", &NodeMetrics::reconnects)
        .def_ro("failed_handshakes", &NodeMetrics::failed_handshakes)
        .def_ro("arena_bytes", &NodeMetrics::arena_bytes)
        .def_ro("arena_used_bytes", &NodeMetrics::arena_used_bytes)
        .def_ro("slots_taken", &NodeMetrics::slots_taken)
        .def_ro("slots_held", &NodeMetrics::slots_held, "Of ended transfers, kept since a late write may land there.")
        .def_ro("held_bytes", &NodeMetrics::held_bytes, "Of the arena, theirs.")
        .def_ro("live_rails", &NodeMetrics::live_rails, "Ways to peers, each over one rail, that have not died.");

    // time.monotonic_ns() reads the same clock.
    const auto ns = [](Clock::time_point t) { return std::chrono::nanoseconds(t.time_since_epoch()).count(); };
    nb::class_<PartTimes>(m, "PartTimes", "When one part of one tensor moved; in ns, as time.monotonic_ns() has them.")
        .def_ro("tensor", &PartTimes::tensor, "In the manifest.")
        .def_ro("part", &PartTimes::part)
        .def_prop_ro(
            "first_ns", [ns](const PartTimes& t) { return ns(t.first); }, "Its first chunk was posted, or arrived.")
        .def_prop_ro(
            "last_ns", [ns](const PartTimes& t) { return ns(t.last); },
            "The last chunk so far was written or, if complete, the part was published.")
        .def_ro("bytes", &PartTimes::bytes, "Written, or arrived and checked; each chunk once.")
        .def_ro("chunks", &PartTimes::chunks)
        .def_ro("resent", &PartTimes::resent, "Chunks sent, or asked for, again.")
        .def_ro("complete", &PartTimes::complete);
}

}  // namespace lynx::bindings
