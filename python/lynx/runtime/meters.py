"""What the loop measures for the policy: steps, passes and the rate of arrival."""

from __future__ import annotations

from collections.abc import Callable

from lynx._core import Revision

MonotonicClock = Callable[[], float]
"""Seconds, of any origin, that never go back: `time.monotonic`, or a simulator's."""


class Deadline:
    """The request's start and its end at the latest."""

    def __init__(self, clock: MonotonicClock, timeout_s: float) -> None:
        self._clock = clock
        self._start = clock()
        self.timeout_s = timeout_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request began."""
        return self._clock() - self._start

    @property
    def late(self) -> bool:
        """Has it passed?"""
        return self.elapsed_s > self.timeout_s


class Mean:
    """Of the durations given to it; before the first what is expected, 0 if nothing is."""

    def __init__(self, expected: float = 0.0) -> None:
        self._expected = expected
        self._sum = 0.0
        self._count = 0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self._sum += seconds
        self._count += 1

    @property
    def seconds(self) -> float:
        """The mean."""
        return self._sum / self._count if self._count else self._expected


class ArrivalRate:
    """Bytes a second since the first bytes were seen; 0 until there is a measure."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._last = (0.0, 0)
        self.bytes_per_second = 0.0

    def see(self, now: float, revision: Revision) -> None:
        """Note what has arrived by now."""
        arrived = sum(revision.arrived_bytes)
        if arrived == 0 or arrived == self._last[1]:
            return  # a pause at the end is no slower link
        if self._first is None:
            self._first = (now, arrived)
        elif now > self._first[0]:
            self.bytes_per_second = (arrived - self._first[1]) / (now - self._first[0])
        self._last = (now, arrived)
