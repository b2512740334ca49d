"""Which drafts may be shown before they are verified. `lynx.runtime.released` applies it to a loop's events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Release(Protocol):
    """Says how much of what is drafted goes out."""

    def shown(self, margins: Sequence[float], /) -> int:
        """How many of the outstanding drafts may be shown, the oldest first; `margins` are how many logits each was
        ahead of its runner-up. What has been shown stays until it is confirmed or taken back, whatever this says later.
        """
        ...


@dataclass(frozen=True, slots=True)
class VerifiedOnly:
    """Nothing is shown that could be taken back."""

    def shown(self, margins: Sequence[float]) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True)
class Provisional:
    """Every draft is shown at once, and taken back if it was wrong."""

    def shown(self, margins: Sequence[float]) -> int:
        """All."""
        return len(margins)


@dataclass(frozen=True, slots=True)
class MarginGated:
    """Drafts are shown up to the first that was less than `margin` logits ahead: the likeliest to be taken back."""

    margin: float = 2.0

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise ValueError(f"MarginGated(margin={self.margin!r}): it has to be 0 logits or more")

    def shown(self, margins: Sequence[float]) -> int:
        """Those before the first close call."""
        return next((i for i, margin in enumerate(margins) if margin < self.margin), len(margins))
