"""What is known before a transfer is asked for, and what can be chosen then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lynx.planning.acceptance import DEFAULT_ACCEPTANCE


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where a request stands before its cache is asked for. Seconds, bytes; 0 is what nobody knows."""

    shapes: tuple[tuple[int, int], ...]
    """(KV heads, head_dim) of each layer."""
    context_tokens: int
    max_tokens: int
    bytes_per_second: float = 0.0
    """Of the transfer."""
    step_s: float = 0.0
    """One decode step of one token."""
    token_s: float = 0.0
    """What each further token adds to a pass."""
    decode_bytes_per_second: float = 0.0
    """Of the codec, counted in bf16 values that it writes."""
    exact: bool = False
    """The verified tier is bf16, bit for bit, and not the 8 planes."""
    acceptance: Mapping[int, float] = field(default_factory=lambda: DEFAULT_ACCEPTANCE)
    """Anchor bits (the mean of K's and V's) -> the mean probability that a draft is the reference's token."""

    def pass_s(self, tokens: int) -> float:
        """Computing seconds of a pass over so many tokens."""
        return self.step_s + max(tokens - 1, 0) * self.token_s

    @property
    def layer_decode_s(self) -> float:
        """Seconds in which the codec writes one layer, in the mean."""
        if not self.decode_bytes_per_second:
            return 0.0
        values = sum(2 * heads * head_dim for heads, head_dim in self.shapes) * self.context_tokens
        return 2 * values / self.decode_bytes_per_second / len(self.shapes)


@dataclass(frozen=True, slots=True)
class Choice:
    """How to ask for the cache."""

    anchor_bits: tuple[int, int] = (5, 3)
    """Planes of K and of V in the anchor. (8, 8) sends layer by layer with all planes, for who does not draft."""
    rungs: int = 1
    """In how many parts the residual comes: 1 in layer order, more plane by plane."""
    draft: bool = True
    """Speculate at all?"""


WHOLE = Choice((8, 8), draft=False)
"""All planes, layer by layer, for who does not speculate."""
