"""The ways to move a cache that are compared. A new one is a line in the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lynx.planning import WHOLE, coding_of
from lynx.policies import Adaptive, AnchorFirst, Blocking, Ladder, LayerReady, Tier
from lynx.transfer import RAW, CacheCoding

BF16, INT8, INT4, KIVI = "bf16", "int8", "int4", "kivi4"
LYNX, EXACT, LADDER, ANCHOR_FIRST = "lynx-int8", "lynx-exact", "lynx-ladder", "anchor-first"
LAYERWISE, ADAPTIVE = "layerwise", "adaptive"


@dataclass(frozen=True, slots=True)
class Mode:
    """`policy` makes a fresh one for each request. `equal_to` is the mode whose tokens the committed ones have to be.

    `coding` is what is asked for unless the policy chooses. `restored` marks what no transfer exists for: its cache is
    written as it would arrive, after the time that its bytes take. `missing` says why a mode cannot be measured.
    """

    name: str
    about: str
    coding: CacheCoding
    policy: Callable[[], Any] | None
    equal_to: str | None = None
    restored: bool = False
    missing: str | None = None

    @property
    def drafts(self) -> bool:
        """Does it speculate?"""
        return self.equal_to is not None and self.name not in (INT8, LAYERWISE)


MODES = {
    mode.name: mode
    for mode in (
        Mode(BF16, "the cache as it is, blocking", RAW, Blocking),
        Mode(INT8, "all 8 planes, blocking", CacheCoding(), Blocking, BF16),
        Mode(INT4, "the anchor alone, blocking, never verified", CacheCoding(parts=1), lambda: Blocking(Tier.ANCHOR)),
        Mode(KIVI, "KIVI's 4 bits, blocking, never verified", RAW, None, restored=True),
        Mode(LYNX, "drafts on the anchor, verified layer by layer on all planes", CacheCoding(), LayerReady, INT8),
        Mode(LADDER, "the same, put right plane by plane before", CacheCoding(rungs=3), Ladder, INT8),
        Mode(EXACT, "drafts on the anchor, verified bit for bit", CacheCoding(exact=True), LayerReady, BF16),
        Mode(
            ANCHOR_FIRST,
            "drafts on the anchor until all planes are there: the paper's",
            CacheCoding(),
            AnchorFirst,
            INT8,
        ),
        Mode(
            LAYERWISE, "all planes layer by layer, no drafts", coding_of(WHOLE), lambda: LayerReady(draft_cap=0), INT8
        ),
        Mode(ADAPTIVE, "a cost model chooses", CacheCoding(), Adaptive, INT8),
    )
}
