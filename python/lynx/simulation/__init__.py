"""The decode loop and its policies over virtual time, with a receiver and an engine that only cost time."""

from __future__ import annotations

from lynx.simulation.clock import VirtualClock
from lynx.simulation.engine import SimulatedEngine
from lynx.simulation.receiver import SimulatedReceiver
from lynx.simulation.run import simulate

__all__ = ["SimulatedEngine", "SimulatedReceiver", "VirtualClock", "simulate"]
