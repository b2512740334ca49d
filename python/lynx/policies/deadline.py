"""Tokens by a time: verified ones if they come in time, drafts where they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lynx._core import Snapshot
from lynx.planning import ANCHORS, WHOLE, Choice, Conditions, forecast
from lynx.policies.base import Action, Tier
from lynx.policies.estimates import TOKEN_COST, draft_on, pass_seconds, seconds_left, time_to_draft


@dataclass(frozen=True, slots=True)
class Deadline:
    """The first token within `ttft_s`, each further one within `token_s` of the one before (None: whenever it comes).

    It asks for all planes layer by layer if verified tokens then come in time; else for the widest anchor whose first
    draft does, so that as little as possible is taken back; if none does, for the narrowest. It drafts no more than the
    targets need before the reference tier can be there, and never more than `draft_cap`: what is shown too early is
    only more to take back.
    """

    ttft_s: float = 0.5
    token_s: float | None = None
    draft_cap: int = 24
    token_cost: float = TOKEN_COST
    waits_for: Tier = Tier.ANCHOR

    def choose(self, conditions: Conditions) -> Choice:
        """Pick the anchor's width."""
        if not conditions.bytes_per_second or not conditions.step_s:
            return Choice()
        if forecast(conditions, WHOLE).first_verified_s <= self.ttft_s:
            return WHOLE
        choices = [Choice(bits) for bits in reversed(ANCHORS)]
        in_time = (c for c in choices if forecast(conditions, c).first_provisional_s <= self.ttft_s)
        return next(in_time, choices[-1])

    def decide(self, snapshot: Snapshot) -> Action:
        """Choose the next step."""
        s = snapshot
        due = s.drafted < min(self._due(s), self.draft_cap)
        if s.verifying:
            return Action.DRAFT if due and draft_on(s) else Action.WAIT
        if s.reference_ready:
            return Action.VERIFY
        if s.can_draft and due and time_to_draft(s, self.token_cost):
            return Action.DRAFT
        # More drafts may become due; until then the pass waits as long as it can.
        late = seconds_left(s) <= pass_seconds(s, s.drafted, self.token_cost)
        return Action.VERIFY if s.layers_ready and (late or not s.can_draft) else Action.WAIT

    def _due(self, s: Snapshot) -> float:
        """How many tokens there should be when the reference tier comes, verified or not."""
        verified_s = s.elapsed_s + seconds_left(s) + pass_seconds(s, s.drafted, self.token_cost) / max(s.layers, 1)
        if verified_s <= self.ttft_s:
            return 0
        if not self.token_s:
            return 1
        return math.inf if math.isinf(verified_s) else 1 + (verified_s - self.ttft_s) // self.token_s
