"""The paper's policy (Lynx, arXiv 2607.01831): draft on the anchor, verify once when the whole residual is in."""

from __future__ import annotations

from dataclasses import dataclass

from lynx._core import Snapshot
from lynx.policies.base import Action, Tier


@dataclass(frozen=True, slots=True)
class AnchorFirst:
    """Draft on the anchor while the residual is on its way; verify all drafts in one pass once it is in.

    `draft_cap` bounds the tokens outstanding, as in the paper: what is drafted beyond the first wrong one is lost work.
    """

    draft_cap: int = 64
    waits_for: Tier = Tier.ANCHOR

    def decide(self, snapshot: Snapshot) -> Action:
        """Choose the next step."""
        if snapshot.reference_ready:
            return Action.VERIFY
        return Action.DRAFT if snapshot.can_draft and snapshot.drafted < self.draft_cap else Action.WAIT
