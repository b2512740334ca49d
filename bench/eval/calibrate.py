"""What a decode step costs here and now: the setting's link is as slow as so many of them, and `Adaptive` is told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

import lynx
from lynx import PlaneLayout, TensorSpec, policies
from lynx.engines.transformers import TransformersEngine

STEPS = 15
WIDE = 9


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of one decode step, of each further token in a pass, and the codec's bytes of bf16 a second."""

    context_tokens: int
    step_s: float
    token_s: float
    decode_bytes_per_second: float

    def conditions(self, shapes: Sequence[tuple[int, int]], tokens: int, bytes_per_second: int, exact: bool) -> Any:
        """For a policy that chooses before the transfer."""
        return policies.Conditions(
            shapes=tuple((heads, head_dim) for heads, head_dim in shapes),
            context_tokens=self.context_tokens,
            max_tokens=tokens,
            bytes_per_second=bytes_per_second,
            step_s=self.step_s,
            token_s=self.token_s,
            decode_bytes_per_second=self.decode_bytes_per_second,
            exact=exact,
        )

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        return asdict(self)


def measure(engine: TransformersEngine, context_tokens: int) -> Pace:
    """On an empty cache of that length, which costs what a full one does. Takes some seconds."""
    engine.start(context_tokens, STEPS + 2 * WIDE)
    for _ in range(3):  # The first passes of each shape pay for allocations and kernel choices.
        engine.forward([0], context_tokens)
        engine.forward([0] * WIDE, context_tokens)
    one = statistics.median(_seconds(engine, [0], context_tokens) for _ in range(STEPS))
    wide = statistics.median(_seconds(engine, [0] * WIDE, context_tokens) for _ in range(STEPS // 3))
    return Pace(context_tokens, one, max(wide - one, 0) / (WIDE - 1), _codec_rate(*engine.layers[0], context_tokens))


def _seconds(engine: TransformersEngine, tokens: list[int], at: int) -> float:
    begin = time.monotonic()
    engine.forward(tokens, at)
    return time.monotonic() - begin


def _codec_rate(heads: int, head_dim: int, tokens: int) -> float:
    codec, layout = lynx.Codec.best(), PlaneLayout(TensorSpec(heads, tokens, head_dim))
    source = torch.randn(heads, tokens, head_dim).to(torch.bfloat16)
    coded, rows = torch.empty(layout.bytes, dtype=torch.uint8), torch.empty(source.shape, dtype=torch.float32)
    codec.encode(source, layout, coded)
    taken = []
    for _ in range(5):
        begin = time.monotonic()
        codec.decode(layout, coded, 8, rows)
        taken.append(time.monotonic() - begin)
    return source.nbytes / statistics.median(taken)
