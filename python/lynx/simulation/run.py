"""One simulated request, measured as real ones are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from lynx.measure import Measured, Stopwatch
from lynx.planning import Choice, Conditions, acceptance_by_part, coding_of
from lynx.policies import Policy, choose
from lynx.runtime import decode
from lynx.simulation.clock import VirtualClock
from lynx.simulation.engine import SimulatedEngine
from lynx.simulation.receiver import SimulatedReceiver

TIMEOUT_S = 1e6


def simulate(
    policy: Policy,
    conditions: Conditions,
    *,
    seed: int = 0,
    choice: Choice | None = None,
    believed: Conditions | None = None,
) -> Measured:
    """Run `lynx.runtime.decode` with the policy under these conditions; times are virtual.

    The transfer is what the policy chooses of it, by the conditions as `believed` if they are others; `choice` stands
    for policies that choose nothing. Raises as `decode` does.
    """
    chosen = choose(policy, believed or conditions) or choice or Choice()
    coding = coding_of(chosen, exact=conditions.exact)
    clock = VirtualClock()
    engine = SimulatedEngine(
        conditions.shapes,
        clock,
        step_s=conditions.step_s,
        token_s=conditions.token_s,
        acceptance=acceptance_by_part(conditions, chosen),
        seed=seed,
    )
    receiver = SimulatedReceiver(
        conditions.shapes,
        conditions.context_tokens,
        coding,
        conditions.bytes_per_second,
        clock,
        conditions.decode_bytes_per_second,
    )
    stopwatch = Stopwatch(clock)
    # The doubles have what the loop uses, and no more.
    loop = decode(
        cast(Any, receiver),
        cast(Any, engine),
        policy,
        max_tokens=conditions.max_tokens,
        timeout_s=TIMEOUT_S,
        step_s=(believed or conditions).step_s,
        clock=clock,
    )
    for event in loop:
        stopwatch.on_event(event)
    return replace(stopwatch.measured, bytes=sum(receiver.revision.arrived_bytes))
