"""What moving a cache costs, and what speculation gains: bytes, times and acceptance by formula. docs/theory.md."""

from __future__ import annotations

from lynx.planning.acceptance import DEFAULT_ACCEPTANCE, acceptance_at, expected_accepted, expected_refined
from lynx.planning.conditions import WHOLE, Choice, Conditions
from lynx.planning.parts import Arrivals, acceptance_by_part, coding_of, part_bytes
from lynx.planning.times import ANCHORS, Forecast, best_anchor, forecast

__all__ = [
    "ANCHORS",
    "DEFAULT_ACCEPTANCE",
    "WHOLE",
    "Arrivals",
    "Choice",
    "Conditions",
    "Forecast",
    "acceptance_at",
    "acceptance_by_part",
    "best_anchor",
    "coding_of",
    "expected_accepted",
    "expected_refined",
    "forecast",
    "part_bytes",
]
