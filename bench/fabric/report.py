"""The results as tables and as JSON, and the bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench import checks as bench_checks
from bench.checks import Check

from .loopback import BARE, CHUNK_BYTES, LATENCY_BYTES, LYNX, MOONCAKE, NIXL, WITHOUT_CHECKSUMS
from .results import Anchors, Goodput, Results
from .shaped import of_rate

TCP_OVER_BARE = 0.95
SHM_OVER_BARE = 0.9
OVER_OTHERS = 1.0
CHECKSUM_COST = 0.05
LINK_SHARE = 0.97
LINK_RATE = 10**9
ANCHOR_RATIO = 1.2
ANCHOR_BACKLOGS = 64
PLAIN_MTU = 1500


def checks(results: Results) -> list[Check]:
    """The bounds of what was measured."""
    return [*_goodput_checks(results), *_link_checks(results), *_anchor_checks(results)]


def _goodput_checks(results: Results) -> Iterator[Check]:
    for row in results.goodput:
        if row.chunk_bytes != CHUNK_BYTES:
            continue
        shm = row.provider == "shm"
        bounds = [(BARE, "bare libfabric", SHM_OVER_BARE if shm else TCP_OVER_BARE)]
        if not shm:
            bounds += [(NIXL, "NIXL over tcp", OVER_OTHERS), (MOONCAKE, "Mooncake over tcp", OVER_OTHERS)]
        for other, words, bound in bounds:
            ratio = row.ratio(LYNX, other)
            if ratio is not None:
                yield Check(f"{row.provider}: goodput over that of {words}", ratio, bound, ">=")
        with_checksums = row.ratio(LYNX, WITHOUT_CHECKSUMS)
        if with_checksums is not None and not shm:
            yield Check(f"{row.provider}: goodput lost to checksums", 1 - with_checksums, CHECKSUM_COST, "<=")


def _link_checks(results: Results) -> Iterator[Check]:
    for row in results.link:
        if row.contender != LYNX or row.bits_per_second != LINK_RATE:
            continue
        plain = row.mtu == PLAIN_MTU
        what = "payload and its headers" if plain else "payload"
        value = row.frames_of_rate if plain else row.payload_of_rate
        yield Check(f"{of_rate(row.bits_per_second)} link, MTU {row.mtu}: {what} of the rate", value, LINK_SHARE, ">=")


def _anchor_checks(results: Results) -> Iterator[Check]:
    for row in results.anchors:
        alone = _alone(results, row)
        if row.backlogs == ANCHOR_BACKLOGS and row.counted and alone is not None:
            name = f"{of_rate(row.bits_per_second)} link: an anchor among {row.backlogs} residuals over its time alone"
            yield Check(name, row.from_put / alone.from_put, ANCHOR_RATIO, "<=")


def _alone(results: Results, row: Anchors) -> Anchors | None:
    return next(
        (one for one in results.anchors if not one.backlogs and one.bits_per_second == row.bits_per_second), None
    )


def to_json(results: Results) -> dict[str, Any]:
    """Everything, for a file."""
    anchors = [
        {**asdict(row), "counted": [asdict(one) for one in row.counted], "ran_dry": row.ran_dry}
        for row in results.anchors
    ]
    goodput = [{**asdict(row), "lynx_over": _ratios(row)} for row in results.goodput]
    return {
        **asdict(results),
        "goodput": goodput,
        "anchors": anchors,
        "checks": bench_checks.to_json(checks(results)),
    }


def _ratios(row: Goodput) -> dict[str, float]:
    ratios = {other: row.ratio(LYNX, other) for other in row.samples if other != LYNX}
    return {other: ratio for other, ratio in ratios.items() if ratio is not None}


def tables(results: Results) -> Iterator[Table]:
    """Of what was measured."""
    if results.goodput:
        yield _goodput_table(results)
    if results.latency:
        yield _latency_table(results)
    if results.link:
        yield _link_table(results)
    if results.anchors:
        yield _anchors_table(results)


def _table(title: str, caption: str, *columns: str) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _goodput_table(results: Results) -> Table:
    table = _table(
        "goodput between two processes",
        "medians of repetitions in turns, from the first post to the last arrival; coding is not counted. lynx over: "
        "the median of the repetitions' ratios",
        *("write KiB", "GB/s", "lynx over"),
    )
    for row in results.goodput:
        for name in row.samples:
            ratio = row.ratio(LYNX, name)
            table.add_row(
                f"{row.provider}: {name}",
                f"{row.chunk_bytes // 1024:,}",
                f"{row.bytes_per_second(name) / 1e9:.2f}",
                "" if name == LYNX or ratio is None else f"{ratio:.3f}",
            )
        table.add_section()
    return table


def _latency_table(results: Results) -> Table:
    table = _table(
        f"one write of {LATENCY_BYTES // 1024} KiB, microseconds",
        "arrival: half a round trip between threads that wait for it. delivered: until the sender knows",
        *("arrival", "delivered"),
    )
    for row in results.latency:
        table.add_row(f"{row.provider}: {row.contender}", _microseconds(row.arrival), _microseconds(row.delivered))
    return table


def _link_table(results: Results) -> Table:
    table = _table(
        "one transfer over a link of a known rate",
        "of the rate: of payload alone, and with the 66 bytes of headers of each full frame, which the link counts too",
        *("MTU", "MiB", "payload", "with headers"),
    )
    for row in results.link:
        table.add_row(
            f"{of_rate(row.bits_per_second)}: {row.contender}",
            str(row.mtu),
            f"{row.total_bytes >> 20:,}",
            f"{row.payload_of_rate:.3f}",
            f"{row.frames_of_rate:.3f}",
        )
    return table


def _anchors_table(results: Results) -> Table:
    table = _table(
        "anchors among residuals of other requests",
        "medians, ms: from the put of an anchor, and from its offer, to its arrival; worst: from put, over alone. *: "
        "the residuals did not last as long as an anchor took, which would have taken longer",
        *("residuals", "from put", "over alone", "worst", "from offer", "over alone"),
    )
    for row in results.anchors:
        alone = _alone(results, row)
        table.add_row(
            of_rate(row.bits_per_second),
            f"{row.backlogs}{'*' if row.ran_dry else ''}",
            _milliseconds(row.from_put),
            _times(row.from_put, alone.from_put if alone else math.nan),
            _times(row.worst_from_put, alone.from_put if alone else math.nan),
            _milliseconds(row.from_offer),
            _times(row.from_offer, alone.from_offer if alone else math.nan),
        )
    return table


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"


def _milliseconds(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds * 1e3:.1f}"


def _times(seconds: float, alone: float) -> str:
    return "" if math.isnan(seconds / alone) else f"{seconds / alone:.2f}"
