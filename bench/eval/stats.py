"""Numbers with what they are worth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Z_95 = 1.959964


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score (1927): it is right for few trials, and near 0 and 1 too."""
    if trials == 0:
        return 0.0, 1.0
    p, z2 = successes / trials, Z_95**2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def median(values: Sequence[float | None]) -> float:
    """NaN where one is missing or there is none: a bound is not kept by what never came."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else math.nan


def ratio(a: float, b: float) -> float:
    """NaN where it has no meaning."""
    return a / b if b else math.nan
