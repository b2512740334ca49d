"""The result as JSON and as a table, and the bounds that the anchor has to keep."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from lynx.transfer import RAW, CacheCoding

from .measure import DEFAULT, Mean, Outcome

MIN_AGREEMENT = 0.96
MAX_KL = 0.01


@dataclass(frozen=True, slots=True)
class Check:
    """A measured value against its bound; `op` is ">=" or "<="."""

    name: str
    value: float
    bound: float
    op: str

    @property
    def ok(self) -> bool:
        """Whether the bound is kept."""
        return self.value >= self.bound if self.op == ">=" else self.value <= self.bound

    def line(self) -> str:
        """Name, measured, bound, met or short."""
        return f"{self.name}: {self.value:.4f}, bound {self.op} {self.bound:g}: {'met' if self.ok else 'short'}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What was measured; with the Python version, whose documentation is the text, it can be repeated."""

    model: str
    codec: str
    context_tokens: int
    tokens_per_text: int
    texts: int

    def title(self) -> str:
        """In one line."""
        return (
            f"{self.model}, {self.texts} texts of {self.context_tokens:,} + {self.tokens_per_text:,} tokens, "
            f"codec {self.codec}"
        )


def checks(outcomes: Sequence[Outcome]) -> list[Check]:
    """The bounds of the default anchor; none if it was not measured."""
    return [
        check
        for outcome in outcomes
        if outcome.candidate == DEFAULT
        for check in (
            Check(f"argmax agreement of {_described(outcome)}", outcome.agreement.value, MIN_AGREEMENT, ">="),
            Check(f"KL in nats of {_described(outcome)}", outcome.kl.value, MAX_KL, "<="),
        )
    ]


def to_json(setting: Setting, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Plain values. `anchor` is null for the raw control, a standard error for a single text."""
    return {
        **asdict(setting),
        "python": platform.python_version(),
        "rows": [
            {
                "name": _name(outcome.candidate),
                "anchor": None if outcome.candidate == RAW else _bits(outcome.candidate),
                "bits_per_value": outcome.bits_per_value,
                "agreement": outcome.agreement.value,
                "agreement_error": _or_none(outcome.agreement.error),
                "kl_nats": outcome.kl.value,
                "kl_nats_error": _or_none(outcome.kl.error),
                "per_text": [{"agreement": score.agreement, "kl_nats": score.kl} for score in outcome.scores],
            }
            for outcome in outcomes
        ],
        "checks": [{**asdict(check), "ok": check.ok} for check in checks(outcomes)],
    }


def to_table(setting: Setting, outcomes: Sequence[Outcome]) -> Table:
    """A row for each candidate."""
    table = Table(
        title=setting.title(),
        caption="against the bf16 cache; KL in nats; mean ± standard error over the texts",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("planes of K + V", no_wrap=True)
    table.add_column("bits a value", justify="right")
    table.add_column("agreement", justify="right", no_wrap=True)
    table.add_column("KL", justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(
            _name(outcome.candidate),
            f"{outcome.bits_per_value:.2f}",
            _with_error(outcome.agreement, 4),
            _with_error(outcome.kl, 5),
            style="bold" if outcome.candidate == DEFAULT else "",
        )
    return table


def _name(candidate: CacheCoding) -> str:
    if candidate == RAW:
        return "raw"
    sinks = f", {candidate.sink_tokens} sinks" if candidate.sink_tokens else ""
    default = " (default)" if candidate == DEFAULT else ""
    return f"{candidate.key_anchor_bits} + {candidate.value_anchor_bits}{sinks}{default}"


def _bits(candidate: CacheCoding) -> dict[str, int]:
    return {
        "key_bits": candidate.key_anchor_bits,
        "value_bits": candidate.value_anchor_bits,
        "sink_tokens": candidate.sink_tokens,
    }


def _described(outcome: Outcome) -> str:
    return f"the default anchor ({outcome.bits_per_value:.2f} bits a value)"


def _with_error(mean: Mean, digits: int) -> str:
    if math.isnan(mean.error):
        return f"{mean.value:.{digits}f}"
    return f"{mean.value:.{digits}f} ± {mean.error:.{digits}f}"


def _or_none(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value
