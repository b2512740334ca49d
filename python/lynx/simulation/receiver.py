"""A receiver whose bytes come by the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lynx._core import Manifest, TensorRole
from lynx.planning import Arrivals, part_bytes
from lynx.simulation.clock import VirtualClock
from lynx.simulation.engine import HeldPart
from lynx.transfer import CacheCoding, make_manifest

FIRST_TOKEN = 0


@dataclass(frozen=True, slots=True)
class SimulatedRevision:
    """What is complete at one moment, by part."""

    number: int
    arrived_bytes: Sequence[int]
    part_bytes: Sequence[int]


class SimulatedReceiver:
    """What the decode loop uses of a `PlaneReceiver`, over virtual time. The first token comes with the manifest."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        context_tokens: int,
        coding: CacheCoding,
        bytes_per_second: float,
        clock: VirtualClock,
        decode_bytes_per_second: float = 0.0,
    ) -> None:
        """The transfer begins now. `decode_bytes_per_second` counts bf16 values that the codec writes; 0: no time."""
        self.manifest: Manifest = make_manifest(shapes, context_tokens, coding, request_id=0, model="simulated")
        self._arrivals = Arrivals(part_bytes(shapes, context_tokens, coding), bytes_per_second)
        self._part_bytes = [sum(part) for part in self._arrivals.sizes]
        self._clock = clock
        self._begin = clock.now
        self._decode_s = [
            2 * heads * head_dim * context_tokens / decode_bytes_per_second if decode_bytes_per_second else 0.0
            for heads, head_dim in shapes
        ]

    @property
    def _seconds(self) -> float:
        return self._clock.now - self._begin

    @property
    def revision(self) -> SimulatedRevision:
        """What is there now."""
        now = self._seconds
        return SimulatedRevision(self._arrivals.completed(now), self._arrivals.bytes_at(now), self._part_bytes)

    @property
    def tier(self) -> int | None:
        """The finest part that is complete for all layers."""
        ready = [part for part in range(len(self._part_bytes)) if self.ready(part)]
        return ready[-1] if ready else None

    def ready(self, part: int) -> bool:
        """Is it complete for all layers?"""
        return self._arrivals.part_at(part) <= self._seconds

    def layer_ready(self, layer: int, part: int) -> bool:
        """Is it complete for this layer?"""
        return self._arrivals.layer_at(part, layer) <= self._seconds

    def first_token(self, timeout_s: float) -> int:
        """It is there at once."""
        return FIRST_TOKEN

    def wait_newer(self, after: int, timeout_s: float) -> SimulatedRevision:
        """Let time pass until something more is complete, but no more than `timeout_s`."""
        end = self._seconds + timeout_s
        if self._arrivals.completed(self._seconds) <= after:
            coming = self._arrivals.next_after(self._seconds)
            self._clock.pass_until(self._begin + (end if coming is None else min(coming, end)))
        return self.revision

    def decode(self, layer: int, role: TensorRole, part: int, out: HeldPart) -> None:
        """Spend the codec's time on one tensor."""
        self._clock.spend(self._decode_s[layer])
        out.part = part
