"""Results as JSON and as tables, and the bounds that the anchor has to keep."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from bench import checks as bench_checks
from bench.checks import Check

from .choices import DEFAULT, RAW, Axes, Choice
from .measure import Mean, Outcome
from .store import Setting

MIN_AGREEMENT = 0.96
MAX_KL = 0.01
MAX_BITS = 4.5

COLUMNS = ("planes of K + V", "bits a value", "agreement", "KL", "KL - default's")
CAPTION = "against the bf16 cache; KL in nats; mean ± standard error over the texts"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcomes of one setting."""

    setting: Setting
    outcomes: Sequence[Outcome]

    @property
    def default(self) -> Outcome | None:
        """The default anchor's, if it was measured."""
        return next((outcome for outcome in self.outcomes if outcome.choice == DEFAULT), None)

    def best(self, max_bits: float = MAX_BITS) -> Outcome | None:
        """The product's anchor of the least KL at that many bits a value or fewer, if there is one."""
        fitting = [o for o in self.outcomes if o.choice.axes is Axes.ROTATION and o.bits_per_value <= max_bits]
        return min(fitting, key=lambda outcome: outcome.kl.value, default=None)

    def by_size(self) -> list[Outcome]:
        """The smallest anchors first, of one size the best first."""
        return sorted(self.outcomes, key=lambda outcome: (round(outcome.bits_per_value, 3), outcome.kl.value))


def checks(result: Result) -> list[Check]:
    """The bounds of the default anchor; none if it was not measured."""
    default = result.default
    if default is None:
        return []
    described = f"the default anchor ({default.bits_per_value:.2f} bits a value)"
    return [
        Check(f"argmax agreement of {described}", default.agreement.value, MIN_AGREEMENT, ">="),
        Check(f"KL in nats of {described}", default.kl.value, MAX_KL, "<="),
    ]


def grid_checks(results: Sequence[Result]) -> list[Check]:
    """The same bounds and the size's for each setting, which the names tell."""
    found = []
    for result in results:
        where = f"{result.setting.model} at {result.setting.context_tokens:,} tokens"
        where += ", held-out texts" if result.setting.held_out else ""
        found += [Check(f"{where}: {check.name}", check.value, check.bound, check.op) for check in checks(result)]
        if result.default is not None:
            name = f"{where}: bits a value of the default anchor"
            found.append(Check(name, result.default.bits_per_value, MAX_BITS, "<="))
    return found


def best_line(result: Result) -> str:
    """Which anchor is the best within the bound, in words."""
    best = result.best()
    if best is None:
        return f"{result.setting.title()}: no anchor of at most {MAX_BITS:g} bits a value was measured"
    return (
        f"{result.setting.title()}: best at <= {MAX_BITS:g} bits a value: {name_of(best.choice)} "
        f"({best.bits_per_value:.3f}), agreement {with_error(best.agreement, 4)}, KL {with_error(best.kl, 5)}"
    )


def to_json(result: Result) -> dict[str, Any]:
    """Plain values. `anchor` is null for the raw control, a standard error for a single text."""
    return {
        **asdict(result.setting),
        "python": platform.python_version(),
        "rows": [_row(outcome, result.default) for outcome in result.outcomes],
        "checks": bench_checks.to_json(checks(result)),
    }


def grid_to_json(results: Sequence[Result]) -> dict[str, Any]:
    """The settings' objects, and the bounds of all of them."""
    return {
        "settings": [to_json(result) for result in results],
        "checks": bench_checks.to_json(grid_checks(results)),
    }


def _row(outcome: Outcome, default: Outcome | None) -> dict[str, Any]:
    above = outcome.kl_above(default) if default is not None else None
    return {
        "name": name_of(outcome.choice),
        "anchor": None if outcome.choice == RAW else _anchor(outcome.choice),
        "bits_per_value": outcome.bits_per_value,
        "agreement": outcome.agreement.value,
        "agreement_error": _or_none(outcome.agreement.error),
        "kl_nats": outcome.kl.value,
        "kl_nats_error": _or_none(outcome.kl.error),
        "kl_above_default": None if above is None else above.value,
        "kl_above_default_error": None if above is None else _or_none(above.error),
        "per_text": [{"agreement": score.agreement, "kl_nats": score.kl} for score in outcome.scores],
    }


def _anchor(choice: Choice) -> dict[str, Any]:
    return {
        "key_bits": choice.key_bits,
        "value_bits": choice.value_bits,
        "sink_tokens": choice.sink_tokens,
        "axes": choice.axes.value,
        "thin_layer": None if choice.thin is None else choice.thin.value,
    }


def to_table(result: Result, outcomes: Sequence[Outcome]) -> Table:
    """A row for each outcome, in their order."""
    table = Table(title=result.setting.title(), caption=CAPTION, title_justify="left", caption_justify="left")
    table.add_column(COLUMNS[0])
    table.add_column(COLUMNS[1], justify="right", min_width=6)
    for column in COLUMNS[2:]:
        table.add_column(column, justify="right", no_wrap=True)
    for outcome, cells in zip(outcomes, _cells(outcomes, result.default), strict=True):
        table.add_row(*cells, style="bold" if outcome.choice == DEFAULT else "")
    return table


def to_markdown(results: Sequence[Result]) -> str:
    """A heading and a table for each setting, the smallest anchors first."""
    lines = []
    for result in results:
        lines += [f"## {result.setting.title()}", "", CAPTION + ".", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "| --- |" + " ---: |" * (len(COLUMNS) - 1)]
        lines += ["| " + " | ".join(cells) + " |" for cells in _cells(result.by_size(), result.default)]
        lines += ["", best_line(result), ""]
    lines += [check.line() for check in grid_checks(results)]
    return "\n".join(lines) + "\n"


def _cells(outcomes: Sequence[Outcome], default: Outcome | None) -> Iterator[tuple[str, ...]]:
    for outcome in outcomes:
        compared = default is not None and outcome.choice not in (DEFAULT, RAW)
        yield (
            name_of(outcome.choice),
            f"{outcome.bits_per_value:.3f}",
            with_error(outcome.agreement, 4),
            with_error(outcome.kl, 5),
            with_error(outcome.kl_above(default), 5, "+") if compared and default is not None else "",
        )


def name_of(choice: Choice) -> str:
    """The choice's name; the default says so."""
    return choice.name + (" (default)" if choice == DEFAULT else "")


def with_error(mean: Mean, digits: int, sign: str = "") -> str:
    """A mean and its standard error, if there is one."""
    value = f"{mean.value:{sign}.{digits}f}"
    return value if math.isnan(mean.error) else f"{value} ± {mean.error:.{digits}f}"


def _or_none(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value
