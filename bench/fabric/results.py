"""What was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Goodput:
    """Payload bytes per second of each contender, one value a repetition, taken in turns."""

    provider: str
    chunk_bytes: int
    total_bytes: int
    samples: dict[str, list[float]]

    def bytes_per_second(self, contender: str) -> float:
        """The median."""
        return median(self.samples[contender])

    def ratio(self, contender: str, other: str) -> float | None:
        """The median of the repetitions' ratios; None if one of both was not measured."""
        if not self.samples.get(contender) or not self.samples.get(other):
            return None
        return median(a / b for a, b in zip(self.samples[contender], self.samples[other], strict=True))


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one small write, in seconds, medians over runs in turns; what a contender cannot tell is None."""

    provider: str
    contender: str
    arrival: float | None
    """Half a round trip: from the call that sends to the call that waits for it at the other end."""
    delivered: float | None
    """Until the sender knows that it has arrived."""


@dataclass(frozen=True, slots=True)
class LinkRun:
    """One transfer over the link."""

    contender: str
    bits_per_second: int
    mtu: int
    total_bytes: int
    payload_of_rate: float
    """Payload bits per second over the rate."""
    frames_of_rate: float
    """The same with the headers that full frames have, which is what the link's rate counts."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One anchor's way, in seconds."""

    from_offer: float
    from_put: float
    backlog_before_bytes: int
    backlog_left_bytes: int


@dataclass(frozen=True, slots=True)
class Anchors:
    """Anchors one after another among `backlogs` residuals. Alone, the first finds its connection cold."""

    bits_per_second: int
    backlogs: int
    anchor_bytes: int
    anchors: list[Anchor]

    @property
    def counted(self) -> list[Anchor]:
        """Alone: all but the first. Else those that at least an anchor's size of residuals was waiting beside.

        If these residuals are gone before the anchor is there, it has taken about twice its time alone or more, so
        that its time tells enough. What met less tells nothing.
        """
        if not self.backlogs:
            return self.anchors[1:]
        return [one for one in self.anchors if one.backlog_before_bytes >= self.anchor_bytes]

    @property
    def worst_from_put(self) -> float:
        """Of those counted; NaN if none is."""
        return max((one.from_put for one in self.counted), default=math.nan)

    @property
    def from_put(self) -> float:
        """The median; NaN if none counts."""
        return median([one.from_put for one in self.counted] or [math.nan])

    @property
    def from_offer(self) -> float:
        """The median; NaN if none counts."""
        return median([one.from_offer for one in self.counted] or [math.nan])

    @property
    def ran_dry(self) -> bool:
        """Whether the residuals were gone before the anchor was there: with more of them it had taken longer."""
        return bool(self.backlogs) and not any(one.backlog_left_bytes for one in self.counted)


@dataclass
class Results:
    """All of it, and in words what could not be measured."""

    libfabric: str
    goodput: list[Goodput] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    link: list[LinkRun] = field(default_factory=list)
    anchors: list[Anchors] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
