"""The simulator against a real transfer: the same loop and policies over the wire, in real time.

The engine sleeps for as long as the simulated one says, so that the machine's own speed does not enter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lynx
from lynx.measure import Measured, Stopwatch
from lynx.planning import Choice, Conditions, acceptance_by_part, coding_of
from lynx.policies import Blocking, Ladder, LayerReady, Policy, choose
from lynx.runtime import decode
from lynx.simulation import SimulatedEngine, VirtualClock, simulate
from lynx.simulation.engine import HeldPart
from lynx.transfer import make_manifest, send_cache
from tests.python.conftest import Pair

CONDITIONS = Conditions(((2, 64),) * 8, 512, 48, 300_000, step_s=0.1, token_s=0.01)
"""The INT8 cache is a transfer of 3.7 s; sleeps are long against what the system adds to them."""


class RealClock(VirtualClock):
    """Spends real time."""

    def __call__(self) -> float:
        return time.monotonic()

    def spend(self, seconds: float) -> None:
        time.sleep(seconds)


class Undecoded:
    """A receiver whose tensors are marked and not decoded: the engine has no rows for them."""

    def __init__(self, receiver: lynx.PlaneReceiver) -> None:
        self._receiver = receiver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._receiver, name)

    def decode(self, layer: int, role: lynx.TensorRole, part: int, out: HeldPart) -> None:
        out.part = part


@contextmanager
def sending(pair: Pair, choice: Choice) -> Iterator[lynx.PlaneReceiver]:
    shapes, tokens = CONDITIONS.shapes, CONDITIONS.context_tokens
    values = np.zeros((2, tokens, 64), np.float32)
    manifest = make_manifest(
        shapes, tokens, coding_of(choice), request_id=1, model="m", first_token=0, dtype=lynx.DType.F32
    )
    rate = int(CONDITIONS.bytes_per_second)
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(
            send_cache, pair.to_decode, manifest, [(values, values)] * len(shapes), bytes_per_second=rate
        )
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        yield receiver
        pair.to_prefill.finish(receiver)
        sent.result(10)


def measure(pair: Pair, policy: Policy) -> Measured:
    choice = choose(policy, CONDITIONS) or Choice()
    clock = RealClock()
    engine: Any = SimulatedEngine(
        CONDITIONS.shapes,
        clock,
        step_s=CONDITIONS.step_s,
        token_s=CONDITIONS.token_s,
        acceptance=acceptance_by_part(CONDITIONS, choice),
    )
    with sending(pair, choice) as receiver:
        stopwatch = Stopwatch(clock)
        double: Any = Undecoded(receiver)
        for event in decode(double, engine, policy, max_tokens=CONDITIONS.max_tokens, clock=clock):
            stopwatch.on_event(event)
    return stopwatch.measured


@pytest.mark.parametrize("policy", [Blocking(), LayerReady(), Ladder()], ids=["blocking", "layer-ready", "ladder"])
def test_the_simulator_tells_the_times_of_a_real_transfer_within_15_percent(pair: Pair, policy: Policy) -> None:
    real, simulated = measure(pair, policy), simulate(policy, CONDITIONS)
    assert real.tokens == simulated.tokens
    assert real.ttft_provisional_s == pytest.approx(simulated.ttft_provisional_s, rel=0.15)
    for k in ("1", "8", "32"):
        assert real.time_to_verified_s[k] == pytest.approx(simulated.time_to_verified_s[k], rel=0.15), k
