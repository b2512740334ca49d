"""Draft while the reference tier is on its way, and let the verifying pass end with its last layer."""

from __future__ import annotations

from dataclasses import dataclass

from lynx._core import Snapshot
from lynx.policies.base import Action, Tier
from lynx.policies.estimates import TOKEN_COST, draft_on, time_to_draft


@dataclass(frozen=True, slots=True)
class LayerReady:
    """Draft as long as one more draft leaves time for the pass; then verify, layer by layer as they arrive.

    `draft_cap` bounds the tokens outstanding: behind the first wrong one everything is lost, and SmolLM2's INT8 cache
    confirms about 13 of 32 drafts of a 4-bit anchor. `token_cost` is what a further token adds to a pass, in decode
    steps, until a pass has been measured.
    """

    draft_cap: int = 24
    token_cost: float = TOKEN_COST
    waits_for: Tier = Tier.ANCHOR

    def decide(self, snapshot: Snapshot) -> Action:
        """Choose the next step."""
        s = snapshot
        if s.verifying:
            return Action.DRAFT if s.drafted < self.draft_cap and draft_on(s) else Action.WAIT
        if s.reference_ready:
            return Action.VERIFY
        if s.can_draft and s.drafted < self.draft_cap and time_to_draft(s, self.token_cost):
            return Action.DRAFT
        # Nothing is left to do but the pass, which cannot begin too early.
        return Action.VERIFY if s.layers_ready else Action.WAIT
