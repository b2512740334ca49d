"""What a policy sees and says."""

from __future__ import annotations

import enum
from typing import Protocol

from lynx._core import Snapshot
from lynx.planning.conditions import Choice, Conditions

__all__ = ["Action", "Choice", "Conditions", "Policy", "PolicyError", "Tier", "name_of"]


class PolicyError(RuntimeError):
    """A policy asked for what cannot be done, or could not be loaded."""


def name_of(policy: object) -> str:
    """What an error calls a policy: its own words, or where it is from if it has none."""
    kind = type(policy)
    return f"{kind.__module__}:{kind.__qualname__}" if kind.__repr__ is object.__repr__ else repr(policy)


class Action(enum.Enum):
    """What the decode loop does next."""

    WAIT = "wait"
    """Until something more has arrived."""
    DRAFT = "draft"
    """Decode one provisional token on the cache as it is. As WAIT where the snapshot's `can_draft` is false."""
    REFINE = "refine"
    """One pass over the drafts on the finest part that is complete: what it confirms stays, the token behind it is put
    right, the rest is taken back, and all stay provisional. As WAIT without drafts, or where they were checked on that
    part before."""
    VERIFY = "verify"
    """One pass of the reference tier over the drafts: commit what it confirms and one token more, roll back the rest.
    Without drafts this is an ordinary decode step. It may start once `layers_ready` is 1 or more, and then waits for
    layer after layer; while it does, the snapshot says `verifying`, and DRAFT goes on drafting behind what is being
    verified."""


class Tier(enum.IntEnum):
    """How much of the cache: the index of its last part."""

    ANCHOR = 0
    RESIDUAL = 1
    EXACT = 2


class Policy(Protocol):
    """Decides, again and again, for one request.

    `decide` is called before each step, on the decode thread, and should be pure and quick: it stands between two
    tokens. A policy may have an attribute `waits_for: Tier`, the tier to which the cache is brought as it arrives,
    layer by layer: the anchor, which it also is without the attribute, or anything finer, which means the reference
    tier. Drafts between are then made on the finest that each layer has by then.

    It may also have a method `choose(conditions: Conditions) -> Choice`, which is asked once, before the transfer is:
    see `lynx.policies.choose`.
    """

    def decide(self, snapshot: Snapshot, /) -> Action:
        """Choose the next step."""
        ...
