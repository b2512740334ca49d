"""What a policy sees and says."""

from __future__ import annotations

import enum
from typing import Protocol

from lynx._core import Snapshot


class PolicyError(RuntimeError):
    """A policy asked for what cannot be done, or could not be loaded."""


class Action(enum.Enum):
    """What the decode loop does next."""

    WAIT = "wait"
    """Until something more has arrived."""
    DRAFT = "draft"
    """Decode one provisional token on the cache as it is. As WAIT where the snapshot's `can_draft` is false."""
    VERIFY = "verify"
    """One pass of the reference tier over the drafts: commit what it confirms and one token more, roll back the rest.
    Without drafts this is an ordinary decode step. Needs the snapshot's `residual_ready`."""


class Tier(enum.IntEnum):
    """How much of the cache: the index of its last part."""

    ANCHOR = 0
    RESIDUAL = 1
    EXACT = 2


class Policy(Protocol):
    """Decides, again and again, for one request.

    `decide` is called before each step, on the decode thread, and should be pure and quick: it stands between two
    tokens. A policy may have an attribute `waits_for: Tier`, the tier to which the cache is decoded while it waits: the
    anchor, which it also is without the attribute, or anything finer, which means the reference tier.
    """

    def decide(self, snapshot: Snapshot, /) -> Action:
        """Choose the next step."""
        ...
