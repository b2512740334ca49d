"""`lynx plan`: what each policy is to bring, by the simulator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from lynx.commands.events import Sink
from lynx.measure import MILESTONES
from lynx.model_shapes import Shapes, shapes_of
from lynx.planning import Choice, Conditions
from lynx.policies import BUILT_IN, Policy, choose
from lynx.simulation import simulate


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The command's arguments, parsed."""

    model: str
    shapes: Shapes | None  # instead of a model's
    context_tokens: int
    bandwidths: Sequence[int]
    tokens: int
    step_s: float | None  # None: measure it
    token_s: float | None
    acceptance: Mapping[int, float]
    exact: bool
    runs: int


def run(options: PlanOptions, emit: Sink) -> dict[str, Any]:
    """Simulate every built-in policy at every bandwidth; the result as it stands in the JSON."""
    name, shapes = ("", options.shapes) if options.shapes else shapes_of(options.model)
    step_s, token_s = _steps(options, emit)
    conditions = Conditions(
        shapes=shapes,
        context_tokens=options.context_tokens,
        max_tokens=options.tokens,
        step_s=step_s,
        token_s=token_s,
        exact=options.exact,
        acceptance=options.acceptance,
    )
    return {
        "model": name,
        "layers": len(shapes),
        "context_tokens": options.context_tokens,
        "new_tokens": options.tokens,
        "reference": "exact" if options.exact else "int8",
        "step_s": step_s,
        "token_s": token_s,
        "step_measured": options.step_s is None,
        "acceptance": {str(bits): probability for bits, probability in sorted(options.acceptance.items())},
        "runs": options.runs,
        "plans": [
            _plan(replace(conditions, bytes_per_second=bandwidth), options.runs) for bandwidth in options.bandwidths
        ],
    }


def _steps(options: PlanOptions, emit: Sink) -> tuple[float, float]:
    if options.step_s is not None:
        return options.step_s, options.step_s * 0.15 if options.token_s is None else options.token_s
    if options.shapes:
        raise ValueError("--shape plans for a model that is not here: its decode step has to be given by --step-ms")
    from lynx import models
    from lynx.commands.steps import measure_steps
    from lynx.engines.transformers import TransformersEngine

    emit({"event": "status", "text": f"measuring how long a step of {options.model} takes; --step-ms says so instead"})
    step_s, token_s = measure_steps(TransformersEngine(models.load(options.model).model), options.context_tokens)
    return step_s, token_s if options.token_s is None else options.token_s


def _plan(conditions: Conditions, runs: int) -> dict[str, Any]:
    policies = {name: _predict(make, conditions, runs) for name, make in BUILT_IN.items()}
    choice = choose(BUILT_IN["adaptive"](), conditions) or Choice()
    return {
        "bandwidth_bytes_per_s": conditions.bytes_per_second,
        "choice": {"anchor_bits": list(choice.anchor_bits), "rungs": choice.rungs, "draft": choice.draft},
        "policies": policies,
    }


def _predict(make: type[Policy], conditions: Conditions, runs: int) -> dict[str, Any]:
    """The means of some runs, whose drafts are wrong at other places."""
    measured = [simulate(make(), conditions, seed=seed) for seed in range(runs)]
    verified = {str(k): _mean([m.time_to_verified_s[str(k)] for m in measured]) for k in MILESTONES}
    return {
        "bytes": mean(m.bytes for m in measured),
        "ttft_provisional_s": _mean([m.ttft_provisional_s for m in measured]),
        "ttft_verified_s": _mean([m.ttft_verified_s for m in measured]),
        "time_to_verified_s": verified,
        "drafted": mean(m.drafted for m in measured),
        "accepted": mean(m.accepted for m in measured),
    }


def _mean(times: Sequence[float | None]) -> float | None:
    """None where a run never came so far."""
    known = [t for t in times if t is not None]
    return mean(known) if len(known) == len(times) else None


def read_acceptance(path: Path) -> dict[int, float]:
    """From JSON: an object from anchor bits to the probability that a draft is right. Raises `ValueError`."""
    try:
        table = {int(bits): float(p) for bits, p in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError, TypeError) as e:
        raise ValueError(f'{path} is no table of acceptance: write {{"4": 0.96, "5": 0.98}} ({e})') from None
    if not table or not all(1 <= bits <= 8 and 0 <= p <= 1 for bits, p in table.items()):
        raise ValueError(f"{path}: acceptance maps anchor bits, 1 to 8, to probabilities, 0 to 1")
    return table
