"""A node's counters, and what Prometheus gets of them over HTTP."""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import lynx
from lynx.transfer import CacheCoding, make_manifest, send_cache

from .conftest import Pair

pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from lynx import metrics

LAYERS = [(np.ones((2, 300, 64), np.float32),) * 2] * 2
SHAPES = [(2, 64)] * 2
DOCS = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def transfer(pair: Pair, request_id: int = 1) -> lynx.Revision:
    """One whole transfer; what has arrived of it."""
    manifest = make_manifest(
        SHAPES, 300, CacheCoding(), request_id=request_id, model="ones", first_token=1, dtype=lynx.DType.F32
    )
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send_cache, pair.to_decode, manifest, LAYERS)
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        assert receiver.wait(1, 10)
        revision = receiver.revision
        pair.to_prefill.finish(receiver)
        sending.result(10)
    # The receiver has it all before the sender's provider has told of the last writes.
    deadline = time.monotonic() + 10
    while sum(pair.prefill.metrics().sent_bytes) < sum(pair.decode.metrics().received_bytes):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return revision


def scrape(server: metrics.Server) -> dict[str, Metric]:
    with urllib.request.urlopen(server.url, timeout=10) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    (found,) = (s.value for f in families.values() for s in f.samples if s.name == sample and dict(s.labels) == labels)
    return float(found)


@pytest.fixture
def server(pair: Pair) -> Iterator[metrics.Server]:
    with metrics.serve({"prefill": pair.prefill, "decode": pair.decode}, 0) as server:
        yield server


def test_a_node_tells_what_it_has_sent_and_received(pair: Pair) -> None:
    assert sum(pair.prefill.metrics().sent_bytes) == 0
    before = pair.decode.metrics()
    arrived = transfer(pair).arrived_bytes
    sent, received = pair.prefill.metrics(), pair.decode.metrics()
    assert sent.sent_bytes == received.received_bytes == arrived[:3]
    assert sum(before.received_bytes) == 0, "what was read stays as it was"
    assert received.received.done == 1
    assert sent.queue_wait[0].count == sent.sent_chunks[0] > 0
    assert sent.write_latency.sum_s > 0
    assert len(sent.write_latency.counts) == len(lynx.DURATION_BOUNDS_S) + 1
    assert received.arena_bytes == pair.decode.arena_bytes
    assert sent.live_rails == 1


def test_prometheus_reads_the_counters_of_one_node_without_a_label_of_its_own(pair: Pair) -> None:
    with metrics.serve(pair.decode, 0) as server:
        arrived = transfer(pair).arrived_bytes
        families = scrape(server)
    assert value(families, "lynx_received_bytes_total", tier="anchor") == arrived[0] > 0
    assert value(families, "lynx_received_bytes_total", tier="residual") == arrived[1] > 0
    assert value(families, "lynx_received_bytes_total", tier="exact") == 0
    assert value(families, "lynx_received_transfers_total", outcome="done") == 1
    assert value(families, "lynx_arena_bytes") == pair.decode.arena_bytes
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(server.url, timeout=10)


def test_several_nodes_are_told_apart_by_a_label_and_counters_only_grow(pair: Pair, server: metrics.Server) -> None:
    transfer(pair)
    first = scrape(server)
    transfer(pair, request_id=2)
    second = scrape(server)
    for families, times in ((first, 1), (second, 2)):
        sent = value(families, "lynx_sent_bytes_total", node="prefill", tier="anchor")
        assert sent == value(families, "lynx_received_bytes_total", node="decode", tier="anchor")
        assert value(families, "lynx_sent_bytes_total", node="decode", tier="anchor") == 0
        assert value(families, "lynx_part_time_seconds_count", node="decode", tier="residual") == times
    growing = {(s.name, *s.labels.items()): s.value for f in first.values() if f.type == "counter" for s in f.samples}
    assert growing
    for family in second.values():
        for sample in family.samples:
            assert sample.value >= growing.get((sample.name, *sample.labels.items()), 0)


def test_histograms_are_cumulative_and_end_with_their_count(pair: Pair, server: metrics.Server) -> None:
    transfer(pair)
    families = scrape(server)
    histograms = [family for family in families.values() if family.type == "histogram"]
    assert len(histograms) == 4
    buckets: dict[tuple[str, ...], list[float]] = {}
    for family in histograms:
        assert family.name.endswith("_seconds")
        for s in family.samples:
            if s.name.endswith("_bucket"):
                key = (family.name, *(v for k, v in sorted(s.labels.items()) if k != "le"))
                buckets.setdefault(key, []).append(s.value)
            elif s.name.endswith("_count"):
                key = (family.name, *(v for _, v in sorted(s.labels.items())))
                assert buckets[key] == sorted(buckets[key])
                assert buckets[key][-1] == s.value
    waited = value(families, "lynx_queue_wait_seconds_count", **{"node": "prefill", "class": "anchor"})
    assert waited == value(families, "lynx_sent_chunks_total", node="prefill", tier="anchor")


def test_the_docs_name_every_metric_and_no_other(server: metrics.Server) -> None:
    exposed = {family.name + ("_total" if family.type == "counter" else "") for family in scrape(server).values()}
    told = set(re.findall(r"^\| `(lynx_\w+)", DOCS.read_text(), re.MULTILINE))
    assert exposed == told


def test_every_counter_of_a_node_is_exposed() -> None:
    known = {row[0] for table in (metrics._COUNTERS, metrics._BY_TIER, metrics._OUTCOMES) for row in table}
    known |= {row[0] for row in metrics._GAUGES} | {row[0] for row in metrics._DURATIONS}
    assert known == {name for name in dir(lynx.NodeMetrics) if not name.startswith("_")}


def test_a_port_that_is_taken_is_named(pair: Pair) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*choose another"):
            metrics.serve(pair.decode, port)
