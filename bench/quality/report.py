"""The result as JSON and as a table, and the bounds that the anchor has to keep."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from .measure import RAW, Candidate, Outcome, prefix

ANCHOR = prefix(4)
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
    """The bounds of the 4-bit anchor; none if it was not measured."""
    return [
        check
        for outcome in outcomes
        if outcome.candidate == ANCHOR
        for check in (
            Check("argmax agreement of the 4-bit anchor", outcome.agreement, MIN_AGREEMENT, ">="),
            Check("KL of the 4-bit anchor in nats", outcome.kl, MAX_KL, "<="),
        )
    ]


def to_json(setting: Setting, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Plain values. `planes` is null for the raw control; `per_text` is in the order of the texts."""
    return {
        **asdict(setting),
        "python": platform.python_version(),
        "rows": [
            {
                "name": _name(outcome.candidate),
                "planes": None if outcome.candidate == RAW else outcome.candidate.planes,
                "bits_per_value": outcome.bits_per_value,
                "agreement": outcome.agreement,
                "kl_nats": outcome.kl,
                "per_text": [{"agreement": score.agreement, "kl_nats": score.kl} for score in outcome.scores],
            }
            for outcome in outcomes
        ],
        "checks": [{**asdict(check), "ok": check.ok} for check in checks(outcomes)],
    }


def to_table(setting: Setting, outcomes: Sequence[Outcome]) -> Table:
    """A row for each candidate; the worst text beside the mean."""
    table = Table(
        title=setting.title(),
        caption="against the bf16 cache; KL in nats",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("planes")
    for column in ("bits a value", "agreement", "KL", "agreement, worst text", "KL, worst text"):
        table.add_column(column, justify="right")
    for outcome in outcomes:
        table.add_row(
            _name(outcome.candidate),
            f"{outcome.bits_per_value:.2f}",
            f"{outcome.agreement:.4f}",
            f"{outcome.kl:.5f}",
            f"{min(score.agreement for score in outcome.scores):.4f}",
            f"{max(score.kl for score in outcome.scores):.5f}",
            style="bold" if outcome.candidate == ANCHOR else "",
        )
    return table


def _name(candidate: Candidate) -> str:
    return "raw" if candidate == RAW else str(candidate.planes)
