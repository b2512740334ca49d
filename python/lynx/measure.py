"""What is measured of one transfer. All times run from one start, all counts are of tokens decoded from the cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from lynx.runtime import Arrived, Committed, Done, Drafted, Event, Started

MILESTONES = (1, 8, 32, 64)


@dataclass(slots=True)
class Measured:
    """One mode's record, as it stands in the JSON.

    `first_token_s` is the time to the token that prefill sampled, `anchor_s` to the complete anchor, as the decode loop
    noticed it. `ttft_*` is the time to the first token from the cache that is at least provisional, or verified.
    `time_to_verified_s` maps k to the time at which k tokens were verified, None where so many never were. `near_ties`
    counts committed tokens as `lynx.runtime.Done` does. `equal` compares `tokens` with those of mode `equal_to`.
    """

    bytes: int = 0
    first_token_s: float | None = None
    anchor_s: float | None = None
    ttft_provisional_s: float | None = None
    ttft_verified_s: float | None = None
    time_to_verified_s: dict[str, float | None] = field(default_factory=lambda: {str(k): None for k in MILESTONES})
    drafted: int = 0
    accepted: int = 0
    rollbacks: int = 0
    near_ties: int = 0
    tokens: list[int] = field(default_factory=list)
    equal_to: str | None = None
    equal: bool | None = None

    def to_json(self) -> dict[str, object]:
        """Plain values, in the order above."""
        return asdict(self)


class Stopwatch:
    """Fills a `Measured` from the events of one decode loop, by the clock that the loop has."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.measured = Measured()
        self._clock = clock
        self._start = clock()
        self._verified = 0

    def on_event(self, event: Event) -> None:
        """Note the time of an event as it happens."""
        now = self._clock() - self._start
        m = self.measured
        if isinstance(event, Started):
            m.first_token_s = now
        if isinstance(event, Arrived) and event.anchor == 1 and m.anchor_s is None:
            m.anchor_s = now
        if isinstance(event, Drafted | Committed) and m.ttft_provisional_s is None:
            m.ttft_provisional_s = now
        if isinstance(event, Committed):
            if m.ttft_verified_s is None:
                m.ttft_verified_s = now
            for k in range(self._verified + 1, self._verified + len(event.tokens) + 1):
                if k in MILESTONES:
                    m.time_to_verified_s[str(k)] = now
            self._verified += len(event.tokens)
        if isinstance(event, Done):
            m.tokens = list(event.tokens)
            m.drafted, m.accepted, m.rollbacks = event.drafted, event.accepted, event.rollbacks
            m.near_ties = event.near_ties
