"""A node's counters for Prometheus; needs the extra `metrics`. What each name means: docs/metrics.md.

`serve(node, port)` answers scrapes by itself. Who has a registry already registers a `NodeCollector` there. Nothing is
counted here: each scrape reads `Node.metrics()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from lynx._core import DURATION_BOUNDS_S, Durations, Node, NodeMetrics

TIERS = ("anchor", "residual", "exact")
OUTCOMES = ("done", "failed", "cancelled")

# (attribute of NodeMetrics, name below lynx_, what it is); counters get _total behind their name.
_BY_TIER = (
    ("sent_bytes", "sent_bytes", "Payload bytes written to peers; what is sent again counts again."),
    ("sent_chunks", "sent_chunks", "Chunks written to peers; what is sent again counts again."),
    ("received_bytes", "received_bytes", "Payload bytes that arrived and passed their check, each chunk once."),
    ("received_chunks", "received_chunks", "Chunks that arrived and passed their check, each once."),
)
_COUNTERS = (
    ("posted_writes", "posted_writes", "Writes that the provider took."),
    ("refused_writes", "refused_writes", "Writes that the provider would not take yet."),
    ("failed_writes", "failed_writes", "Writes that ended in an error."),
    ("resent_chunks", "resent_chunks", "Chunks queued once more: lost, damaged, or on a dead rail."),
    ("damaged_chunks", "damaged_chunks", "Chunks that arrived with a wrong checksum."),
    ("duplicate_chunks", "duplicate_chunks", "Chunks that arrived once more."),
    ("stray_writes", "stray_writes", "Arrived writes for a slot that nobody holds any more, or a chunk that it lacks."),
    ("asked_chunks", "asked_chunks", "Chunks that were asked for again."),
    ("heartbeats_missed", "heartbeats_missed", "Heartbeats of peers that did not come in time."),
    ("reconnects", "reconnects", "Connections that came back after they were lost."),
    (
        "failed_handshakes",
        "failed_handshakes",
        "Connections that were refused: a stranger, another version, a wrong key.",
    ),
)
_OUTCOMES = (
    ("sent", "sent_transfers", "Outgoing transfers that have ended."),
    ("received", "received_transfers", "Incoming transfers that have ended."),
)
_GAUGES = (
    ("in_flight_bytes", "in_flight_bytes", "Bytes that the provider has taken and not completed."),
    ("arena_bytes", "arena_bytes", "Size of the registered arena."),
    ("arena_used_bytes", "arena_used_bytes", "Bytes of the arena that transfers hold."),
    ("slots_taken", "slots_taken", "Incoming transfers that hold a slot."),
    ("slots_held", "slots_held", "Slots of ended transfers, kept since a late write may land there."),
    ("held_bytes", "arena_held_bytes", "Bytes of the arena that those slots have."),
    ("live_rails", "live_rails", "Ways to peers, each over one rail, that have not died."),
)
# With the name of the label, or none.
_DURATIONS = (
    ("queue_wait", "queue_wait_seconds", "A chunk's wait from put to the provider, by class.", "class"),
    ("write_latency", "write_latency_seconds", "From a write's posting to its completion.", None),
    ("lateness", "lateness_seconds", "Chunks of transfers with a deadline: completed so long after it, or 0.", "tier"),
    ("part_time", "part_time_seconds", "From a slot's grant until a tier is complete for all layers.", "tier"),
)


class NodeCollector(Collector):
    """One node, or several by name, which then stands in the label `node` of each sample."""

    def __init__(self, nodes: Node | Mapping[str, Node]) -> None:
        self._nodes: dict[tuple[str, ...], Node] = (
            {(): nodes} if isinstance(nodes, Node) else {(name,): node for name, node in nodes.items()}
        )
        self._labels = () if isinstance(nodes, Node) else ("node",)

    def collect(self) -> Iterator[Metric]:
        """Read the nodes, once."""
        read = [(labels, node.metrics()) for labels, node in self._nodes.items()]
        for attribute, name, about in _COUNTERS:
            counter = CounterMetricFamily(f"lynx_{name}", about, labels=self._labels)
            for labels, metrics in read:
                counter.add_metric(labels, getattr(metrics, attribute))
            yield counter
        for attribute, name, about in _BY_TIER:
            counter = CounterMetricFamily(f"lynx_{name}", about, labels=(*self._labels, "tier"))
            for labels, metrics in read:
                for tier, value in zip(TIERS, getattr(metrics, attribute), strict=True):
                    counter.add_metric((*labels, tier), value)
            yield counter
        for attribute, name, about in _OUTCOMES:
            counter = CounterMetricFamily(f"lynx_{name}", about, labels=(*self._labels, "outcome"))
            for labels, metrics in read:
                for outcome in OUTCOMES:
                    counter.add_metric((*labels, outcome), getattr(getattr(metrics, attribute), outcome))
            yield counter
        for attribute, name, about in _GAUGES:
            gauge = GaugeMetricFamily(f"lynx_{name}", about, labels=self._labels)
            for labels, metrics in read:
                gauge.add_metric(labels, getattr(metrics, attribute))
            yield gauge
        for attribute, name, about, label in _DURATIONS:
            yield self._durations(read, attribute, f"lynx_{name}", about, label)

    def _durations(
        self, read: list[tuple[tuple[str, ...], NodeMetrics]], attribute: str, name: str, about: str, label: str | None
    ) -> Metric:
        family = HistogramMetricFamily(name, about, labels=(*self._labels, *([label] if label else [])))
        for labels, metrics in read:
            value = getattr(metrics, attribute)
            by_label: dict[tuple[str, ...], Durations] = (
                {(tier,): d for tier, d in zip(TIERS, value, strict=True)} if label else {(): value}
            )
            for own, durations in by_label.items():
                family.add_metric((*labels, *own), _cumulative(durations), durations.sum_s)
        return family


def _cumulative(durations: Durations) -> list[tuple[str, float]]:
    bounds = [*(repr(bound) for bound in DURATION_BOUNDS_S), "+Inf"]
    below = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip(bounds, durations.counts, strict=True):
        below += count
        buckets.append((bound, below))
    return buckets


class Server:
    """Answers scrapes on threads of its own until it is closed. A context manager too."""

    def __init__(self, nodes: Node | Mapping[str, Node], port: int, host: str) -> None:
        registry = CollectorRegistry()
        registry.register(NodeCollector(nodes))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as e:  # the latter for a number that is no port
            why = (e.strerror if isinstance(e, OSError) else None) or e
            raise OSError(f"metrics cannot be served at {host}:{port}: {why}; choose another port") from e
        self.port = int(self._server.server_port)
        self.url = f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def serve(nodes: Node | Mapping[str, Node], port: int, host: str = "127.0.0.1") -> Server:
    """Serve the metrics of a node, or of several by name, over HTTP; port 0 takes a free one. Raises `OSError`.

    There is no authentication: leave `host` at loopback, or put something before it.
    """
    return Server(nodes, port, host)
