"""Time that passes only when somebody spends it."""

from __future__ import annotations


class VirtualClock:
    """Seconds from 0 on. Called like `time.monotonic`; for `lynx.runtime.decode(clock=...)`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def spend(self, seconds: float) -> None:
        """Let so much time pass."""
        self.now += seconds

    def pass_until(self, moment: float) -> None:
        """Let time pass up to `moment`, if that is to come."""
        self.now = max(self.now, moment)
