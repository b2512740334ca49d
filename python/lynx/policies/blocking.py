"""The baseline that everyone runs today: decode when the cache is there, and not before."""

from __future__ import annotations

from dataclasses import dataclass

from lynx._core import Snapshot
from lynx.policies.base import Action, Tier


@dataclass(frozen=True, slots=True)
class Blocking:
    """Wait for a tier, then decode on it.

    On the residual (the default) every token is verified as it comes. On the anchor alone no token ever is: the output
    is provisional to its end, and labelled so.
    """

    waits_for: Tier = Tier.RESIDUAL

    def decide(self, snapshot: Snapshot) -> Action:
        """Choose the next step."""
        if self.waits_for is Tier.ANCHOR:
            return Action.DRAFT if snapshot.can_draft else Action.WAIT
        return Action.VERIFY if snapshot.reference_ready else Action.WAIT
