"""What a snapshot says about the seconds to come."""

from __future__ import annotations

import math

from lynx._core import Snapshot

TOKEN_COST = 0.15
"""What each further token adds to a pass, in decode steps, where nothing better is known: a CPU's. A GPU's is less."""

STEP_S = 0.03
"""What a draft step is taken to last as long as none has been measured: on a fast link the first draft is the one that
comes too late."""


def seconds_left(s: Snapshot) -> float:
    """Until the reference tier is complete; infinite as long as no rate is measured, or none is sent."""
    if s.reference_ready:
        return 0.0
    return s.bytes_left / s.bytes_per_second if s.reference >= 0 and s.bytes_per_second > 0 else math.inf


def seconds_to_next_layer(s: Snapshot) -> float:
    """Until one more layer has the reference tier, at most."""
    return seconds_left(s) / max(s.layers - s.layers_ready, 1)


def step_seconds(s: Snapshot) -> float:
    """That a draft step takes."""
    return s.draft_s or STEP_S


def pass_seconds(s: Snapshot, drafts: int, token_cost: float = TOKEN_COST) -> float:
    """That a pass over `drafts` drafts computes: from a draft step, or what passes have taken if that is more."""
    return max(step_seconds(s) * (1 + token_cost * drafts), s.pass_s)


def time_to_draft(s: Snapshot, token_cost: float = TOKEN_COST) -> bool:
    """Can one more draft be made, and the verifying pass after it still end with the last layer?"""
    return seconds_left(s) > step_seconds(s) + pass_seconds(s, s.drafted + 1, token_cost)


def draft_on(s: Snapshot) -> bool:
    """While a pass waits for its next layer: is that more than a draft step away?"""
    return s.can_draft and seconds_to_next_layer(s) > step_seconds(s)
