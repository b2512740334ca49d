"""What was measured."""

from __future__ import annotations

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
    """Anchors one after another among `backlogs` residuals."""

    bits_per_second: int
    backlogs: int
    anchor_bytes: int
    anchors: list[Anchor]

    @property
    def counted(self) -> list[Anchor]:
        """Those that met a backlog from begin to end; where none did, those that met one at all."""
        if not self.backlogs:
            return self.anchors
        whole = [one for one in self.anchors if one.backlog_left_bytes > 0]
        return whole or [one for one in self.anchors if one.backlog_before_bytes > 0]

    @property
    def from_put(self) -> float:
        """The median."""
        return median(one.from_put for one in self.counted)

    @property
    def from_offer(self) -> float:
        """The median."""
        return median(one.from_offer for one in self.counted)

    @property
    def ran_dry(self) -> bool:
        """Whether an anchor outlived the backlogs: then its time is less than it would have been."""
        return bool(self.backlogs) and all(one.backlog_left_bytes == 0 for one in self.counted)


@dataclass
class Results:
    """All of it, and in words what could not be measured."""

    libfabric: str
    goodput: list[Goodput] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    link: list[LinkRun] = field(default_factory=list)
    anchors: list[Anchors] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
