"""Bytes of each part and layer, and when they arrive."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

from lynx._core import PlaneLayout, TensorSpec
from lynx.planning.acceptance import INT8_AGREEMENT, acceptance_at
from lynx.planning.conditions import Choice, Conditions
from lynx.transfer import CacheCoding

PLANES = 8
EXACT_SHARE = 3.43 / 16
"""Of the source's bytes that the exact tier takes, index included: measured on SmolLM2's cache, docs/wire-format.md
has the most that it can be."""


def coding_of(choice: Choice, *, exact: bool = False) -> CacheCoding:
    """The coding that a choice asks for. Where all planes are in the anchor nothing has to be sent twice."""
    coding = CacheCoding(
        key_anchor_bits=choice.anchor_bits[0],
        value_anchor_bits=choice.anchor_bits[1],
        rungs=choice.rungs,
        exact=exact,
    )
    whole = min(choice.anchor_bits) == PLANES
    return replace(coding, sink_tokens=0, thin_last_value=False) if whole else coding


def part_bytes(shapes: Sequence[tuple[int, int]], context_tokens: int, coding: CacheCoding) -> list[list[int]]:
    """Bytes by part, in sending order, and layer. The exact tier's depend on the values: here stands their mean."""
    layers = len(shapes)
    by_layer = [
        [
            sum(pair)
            for pair in zip(
                *(
                    _tensor_parts(heads, head_dim, context_tokens, bits, coding)
                    for bits in coding.anchor_bits(layer, layers)
                ),
                strict=True,
            )
        ]
        for layer, (heads, head_dim) in enumerate(shapes)
    ]
    return [list(sizes) for sizes in zip(*by_layer, strict=True)]


@functools.lru_cache(maxsize=1024)  # a model's layers are alike, but for a few
def _tensor_parts(heads: int, head_dim: int, tokens: int, anchor_bits: int, coding: CacheCoding) -> Sequence[int]:
    layout = PlaneLayout(
        TensorSpec(
            heads,
            tokens,
            head_dim,
            coding=coding.coding,
            anchor_bits=anchor_bits,
            sink_tokens=coding.sink_tokens,
            exact=coding.exact,
        )
    )
    planes = coding.parts - coding.exact
    sizes = [layout.part(part, coding.rungs).bytes for part in range(planes)]
    return [*sizes, round(layout.exact_payload.bytes * EXACT_SHARE)] if coding.exact else sizes


def acceptance_by_part(conditions: Conditions, choice: Choice) -> list[float]:
    """The probability that a draft on each part is the reference's token; 1 on the reference itself."""
    bits = [sum(min(width + rung, PLANES) for width in choice.anchor_bits) / 2 for rung in range(choice.rungs)]
    parts = [acceptance_at(conditions.acceptance, b) if b < PLANES else 1.0 for b in bits] + [1.0]
    if not conditions.exact:
        return parts
    int8 = conditions.acceptance.get(PLANES, INT8_AGREEMENT)
    return [p * int8 for p in parts] + [1.0]


class Arrivals:
    """When each part of each layer is there, sent at an even rate: anchors of all layers, then part 1 of all, ..."""

    def __init__(self, sizes: Sequence[Sequence[int]], bytes_per_second: float) -> None:
        """`sizes` are bytes by part and layer. Raises `ValueError` without a bandwidth."""
        if bytes_per_second <= 0:
            raise ValueError(f"a bandwidth of {bytes_per_second} bytes per second: it has to be above 0")
        self.sizes = sizes
        self.bytes_per_second = bytes_per_second
        ends = iter(list(itertools.accumulate(size for part in sizes for size in part)))
        self._ready: list[list[float]] = []
        for part in sizes:
            at = [next(ends) / bytes_per_second for _ in part]
            # What is empty is there with what is before it.
            self._ready.append(
                [t if size else self._ready[-1][i] for i, (t, size) in enumerate(zip(at, part, strict=True))]
            )
        self._moments = sorted({t for part in self._ready for t in part})

    def layer_at(self, part: int, layer: int) -> float:
        """Seconds until `layer` has every part up to `part`."""
        return self._ready[part][layer]

    def part_at(self, part: int) -> float:
        """Seconds until all layers have."""
        return max(self._ready[part])

    def bytes_at(self, seconds: float) -> list[int]:
        """How many of each part have arrived by then."""
        left = int(seconds * self.bytes_per_second)
        arrived = []
        for part in self.sizes:
            arrived.append(min(left, sum(part)))
            left -= arrived[-1]
        return arrived

    def completed(self, seconds: float) -> int:
        """At how many moments something has become complete by then."""
        return bisect.bisect_right(self._moments, seconds)

    def next_after(self, seconds: float) -> float | None:
        """When the next part of a layer will be complete."""
        at = self.completed(seconds)
        return self._moments[at] if at < len(self._moments) else None
