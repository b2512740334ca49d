"""The bounds of what was measured. Of what was not there is no check, and nothing stands for it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.checks import Check
from lynx.units import format_bandwidth

from .modes import ADAPTIVE, ANCHOR_FIRST, INT4, INT8, LADDER, LAYERWISE, LYNX
from .stats import median, ratio

Row = dict[str, Any]
MILESTONES = (1, 8, 32, 64)
FIXED = (INT8, LAYERWISE, LYNX, LADDER, ANCHOR_FIRST)
NOT_SPECULATING = (INT8, LAYERWISE)
CLEARLY = 0.98
"""Of the best that drafts: what does not draft has to be that much sooner to be called the best."""


def by_mode(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each mode."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["mode"]].append(row)
    return dict(found)


def grouped(rows: Sequence[Row], *fields: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values of some fields, in the order in which these first came."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[field] for field in fields)].append(row)
    return dict(found)


def time_to(k: int) -> Callable[[Row], float | None]:
    """Seconds to k verified tokens."""
    return lambda row: row["time_to_verified_s"][str(k)]


def last_milestone(rows: Sequence[Row]) -> int:
    """The greatest number of tokens that were wanted and whose time is kept."""
    return max(k for k in MILESTONES if k <= rows[0]["tokens_wanted"])


def of(rows: Sequence[Row], value: Callable[[Row], float | None]) -> float:
    """The median."""
    return median([value(row) for row in rows])


def setting(rows: Sequence[Row]) -> Iterator[Check]:
    """Against blocking INT8 and against the anchor alone, on a link as slow to INT8 as 36 decode steps."""
    for (model, context), group in grouped(rows, "model", "context").items():
        modes, where = by_mode(group), f"setting: {model}, {context:,} tokens"
        if INT8 not in modes or LYNX not in modes:
            continue
        for k in MILESTONES:
            if k > group[0]["tokens_wanted"]:
                continue
            value = ratio(of(modes[LYNX], time_to(k)), of(modes[INT8], time_to(k)))
            yield Check(f"{where}: time to {k} verified over blocking INT8's", value, 1.0, "<=")
        provisional = of(modes[LYNX], lambda row: row["ttft_provisional_s"])
        first = of(modes[INT8], lambda row: row["ttft_verified_s"])
        yield Check(f"{where}: INT8's first token over lynx's first provisional", ratio(first, provisional), 1.7, ">=")
        if INT4 in modes:
            value = ratio(provisional, of(modes[INT4], lambda row: row["ttft_provisional_s"]))
            yield Check(f"{where}: lynx's first provisional over INT4's", value, 1.05, "<=")


def equality(rows: Sequence[Row]) -> Iterator[Check]:
    """Committed tokens against blocking decoding."""
    cases = [case for row in rows for case in row["cases"]]
    for (tier, sampling), group in grouped(cases, "tier", "sampling").items():
        different = sum(not case["equal"] and not case["near_tie"] for case in group)
        ties = sum(not case["equal"] and bool(case["near_tie"]) for case in group)
        name = f"equality: {tier}, {sampling}, {len(group)} prompts: texts that differ ({ties} more at near ties)"
        yield Check(name, different, 0, "<=")
    exact = [case for case in cases if case["tier"] == "exact"]
    if exact:
        other = sum(not case["same_rows"] for case in exact)
        yield Check("equality: exact tier: caches that are not the bf16 cache bit for bit", other, 0, "<=")
    if cases:
        rollbacks = sum(case["rollbacks"] for case in cases) / len(cases)
        yield Check("equality: rollbacks a text, without which it proves nothing", rollbacks, 0.1, ">=")


def adaptive(rows: Sequence[Row]) -> Iterator[Check]:
    """Against the best policy that does not adapt, at each bandwidth."""
    against = 0
    seen = False
    for (model, rate), group in grouped(rows, "model", "bytes_per_second").items():
        modes, tokens = by_mode(group), last_milestone(group)
        last = time_to(tokens)
        times = {name: of(modes[name], last) for name in FIXED if name in modes}
        if ADAPTIVE not in modes or not times:
            continue
        seen = True
        best = min(times, key=lambda name: times[name] if not math.isnan(times[name]) else math.inf)
        value = ratio(of(modes[ADAPTIVE], last), times[best])
        where = f"adaptive: {model}, {format_bandwidth(rate)}"
        yield Check(f"{where}: time to {tokens} verified over the best's ({best})", value, 1.1, "<=")
        drafting = [time for name, time in times.items() if name not in NOT_SPECULATING]
        without = [time for name, time in times.items() if name in NOT_SPECULATING]
        if drafting and without and min(without) < CLEARLY * min(drafting):
            against += of(modes[ADAPTIVE], lambda row: row["drafted"]) > 0
    if seen:
        yield Check("adaptive: bandwidths at which it speculates though that is not the best", against, 0, "<=")


def faults(rows: Sequence[Row]) -> Iterator[Check]:
    """A request whose sender has died."""
    if not rows:
        return
    wrong = sum(row["killed"] and (bool(row["verified"]) or row["committed"] > 0) for row in rows)
    yield Check("faults: requests called verified, whole or in part, after the sender's death", wrong, 0, "<=")
    ended = sum(_as_said(row) for row in rows)
    yield Check("faults: requests that ended as OnLoss says", ended / len(rows), 1.0, ">=")


def _as_said(row: Row) -> bool:
    if not row["killed"]:
        return False
    if row["on_loss"] == "RAISE":
        return row["raised"] is not None
    return row["raised"] is None and row["verified"] is False and row["tier"] == "ANCHOR" and row["error"] is not None


SECTIONS: dict[str, Callable[[Sequence[Row]], Iterator[Check]]] = {
    "setting": setting,
    "equality": equality,
    "adaptive": adaptive,
    "faults": faults,
}


def checks(rows_of: Callable[[str], Sequence[Row]]) -> list[Check]:
    """Of all sections that have rows."""
    return [check for name, bounds in SECTIONS.items() for check in bounds(rows_of(name))]
