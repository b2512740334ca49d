"""The plane ladder: a pass over the drafts at each finer part, and drafting goes on from what it has put right."""

from __future__ import annotations

from dataclasses import dataclass

from lynx._core import Snapshot
from lynx.planning import Choice, Conditions
from lynx.policies.base import Action, Tier
from lynx.policies.estimates import TOKEN_COST, draft_on, pass_seconds, seconds_left, time_to_draft


@dataclass(frozen=True, slots=True)
class Ladder:
    """As `LayerReady`, and between the parts: REFINE when a finer one is complete, if that leaves time for the pass.

    `rungs` is how many parts the residual comes in. `worth` names those that are worth a pass, all without. A rung
    is left out with fewer than `min_drafts` drafts: the pass costs more than what it would put right. `draft_cap`
    bounds the drafts on each part.
    """

    rungs: int = 3
    worth: frozenset[int] | None = None
    min_drafts: int = 6
    draft_cap: int = 24
    token_cost: float = TOKEN_COST
    waits_for: Tier = Tier.ANCHOR

    def choose(self, conditions: Conditions) -> Choice:
        """Ask for the residual plane by plane."""
        return Choice(rungs=self.rungs)

    def decide(self, snapshot: Snapshot) -> Action:
        """Choose the next step."""
        s = snapshot
        cap = self.draft_cap * (max(s.checked_part, 0) + 1)
        if s.verifying:
            return Action.DRAFT if s.drafted < cap and draft_on(s) else Action.WAIT
        if s.reference_ready:
            return Action.VERIFY
        if self._refine(s):
            return Action.REFINE
        if s.can_draft and s.drafted < cap and time_to_draft(s, self.token_cost):
            return Action.DRAFT
        # The last part is behind the last rung; as long as rungs are to come, a pass would keep them from being used.
        return Action.VERIFY if s.layers_ready else Action.WAIT

    def _refine(self, s: Snapshot) -> bool:
        if not s.checked_part < s.part < s.reference or s.drafted < self.min_drafts:
            return False
        if self.worth is not None and s.part not in self.worth:
            return False
        # This pass and, after it, the verifying one.
        return seconds_left(s) > 2 * pass_seconds(s, s.drafted, self.token_cost)
