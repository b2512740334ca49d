"""How long this machine takes for a step of a model."""

from __future__ import annotations

import time
from typing import Any

PASS_TOKENS = 16  # of the pass that is measured


def measure_steps(engine: Any, context_tokens: int) -> tuple[float, float]:
    """Seconds of a decode step, and what each further token adds to a pass.

    The first pass of each shape pays for allocations and kernel choices that belong to no mode: it is not counted.
    """
    engine.start(context_tokens, PASS_TOKENS + 1)

    def seconds(tokens: int) -> float:
        engine.forward([0] * tokens, context_tokens)
        begin = time.monotonic()
        engine.forward([0] * tokens, context_tokens)
        return time.monotonic() - begin

    step_s, pass_s = min(seconds(1), seconds(1)), seconds(PASS_TOKENS)
    return step_s, max(pass_s - step_s, 0.0) / (PASS_TOKENS - 1)
