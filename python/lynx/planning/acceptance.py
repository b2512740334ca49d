"""How many drafts the reference tier accepts, in the mean."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEFAULT_ACCEPTANCE: Mapping[int, float] = MappingProxyType({2: 0.80, 3: 0.92, 4: 0.965, 5: 0.98, 6: 0.99, 7: 0.994})
"""Mean planes of K and V -> the probability that a draft is the token of the INT8 cache: about what SmolLM2 shows with
4 sinks and two planes more of K than of V. Another model wants its own figures (`bench/eval` measures them)."""

INT8_AGREEMENT = 0.995
"""That the INT8 cache gives the token of the bf16 cache, where the mapping does not say (for 8 planes)."""


def acceptance_at(acceptance: Mapping[int, float], bits: float) -> float:
    """The probability at `bits` planes, between the mapping's own by straight lines, 0 planes being 0.

    Raises `ValueError` for an empty mapping or a probability out of range.
    """
    known = sorted(acceptance.items())
    if not known or not all(0 <= p <= 1 for _, p in known):
        raise ValueError(f"acceptance {dict(acceptance)!r} has to map anchor bits to probabilities from 0 to 1")
    below_bits, below = 0.0, 0.0
    for at, probability in known:
        if bits <= at:
            return below + (probability - below) * (bits - below_bits) / (at - below_bits)
        below_bits, below = at, probability
    return below


def expected_accepted(drafts: float, probability: float) -> float:
    """Of `drafts` tokens, each right with `probability` if all before it are, how many stand before the first wrong.

    With the verifier's own token behind them these are the (1 - a^(n+1)) / (1 - a) tokens of a pass in Leviathan et
    al., "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192, equation 1.
    """
    if probability >= 1:
        return drafts
    return float(probability * (1 - probability**drafts) / (1 - probability))


def expected_refined(drafts: int, probability: float, finer: float, then: int) -> float:
    """The same after a pass at a finer part over them, and `then` more drafts on that part.

    The pass puts its own token in place of the first wrong one. A token that the coarser part gets right the finer one
    does too, so that the correction is right with probability (finer - probability) / (1 - probability).
    """
    if probability >= 1:
        return drafts + then
    kept = probability**drafts
    corrected = max(finer - probability, 0.0) / (1 - probability)
    goes_on = (1 - kept) * corrected + kept * finer
    return expected_accepted(drafts, probability) + goes_on * (1 + expected_accepted(then, finer))
