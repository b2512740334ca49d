"""The ways to move a cache that are compared. A new one is a line in the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lynx
from lynx.modes import coding_from_json, coding_to_json
from lynx.policies import Blocking, Tier
from lynx.transfer import RAW, CacheCoding, make_manifest

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


def _coding(**options: Any) -> tuple[CacheCoding, str | None]:
    known = inspect.signature(CacheCoding).parameters
    unknown = [name for name in options if name not in known]
    if unknown:
        return CacheCoding(), f"this Lynx has no CacheCoding with {', '.join(unknown)}"
    coding = CacheCoding(**options)
    try:
        make_manifest([(1, 32)], 8, coding_from_json(coding_to_json(coding)), request_id=1, model="probe")
    except (ValueError, TypeError, lynx.Error) as e:
        return coding, f"this Lynx cannot send {coding}: {e}"
    return coding, None


def _policy(name: str, **options: Any) -> tuple[Callable[[], Any] | None, str | None]:
    kind = getattr(lynx.policies, name, None)
    if kind is None:
        return None, f"this Lynx has no policy {name}"
    return lambda: kind(**options), None


def _mode(
    name: str, about: str, equal_to: str, policy: str, coding: dict[str, Any] | None = None, **options: Any
) -> Mode:
    made, no_policy = _policy(policy, **options)
    asked, no_coding = _coding(**(coding or {}))
    return Mode(name, about, asked, made, equal_to, missing=no_policy or no_coding)


ANCHOR_ALONE, _ = (
    _coding(parts=1) if "parts" in inspect.signature(CacheCoding).parameters else _coding(anchor_only=True)
)
WHOLE = {"key_anchor_bits": 8, "value_anchor_bits": 8, "sink_tokens": 0, "thin_last_value": False}
"""What is sent layer by layer with all planes."""

MODES = {
    mode.name: mode
    for mode in (
        Mode(BF16, "the cache as it is, blocking", RAW, Blocking),
        Mode(INT8, "all 8 planes, blocking", CacheCoding(), Blocking, BF16),
        Mode(INT4, "the anchor alone, blocking, never verified", ANCHOR_ALONE, lambda: Blocking(Tier.ANCHOR)),
        Mode(KIVI, "KIVI's 4 bits, blocking, never verified", RAW, None, restored=True),
        _mode(LYNX, "drafts on the anchor, verified layer by layer on all planes", INT8, "LayerReady"),
        _mode(LADDER, "the same, put right plane by plane before", INT8, "Ladder", {"rungs": 3}),
        _mode(EXACT, "drafts on the anchor, verified bit for bit", BF16, "LayerReady", {"exact": True}),
        _mode(ANCHOR_FIRST, "drafts on the anchor until all planes are there: the paper's", INT8, "AnchorFirst"),
        _mode(LAYERWISE, "all planes layer by layer, no drafts", INT8, "LayerReady", WHOLE, draft_cap=0),
        # What it may choose: without rungs it is another policy.
        _mode(ADAPTIVE, "a cost model chooses", INT8, "Adaptive", {"rungs": 3}),
    )
}


def coding_of(choice: Any, mode: Mode) -> CacheCoding:
    """What a policy has chosen (`lynx.policies.Choice`), as a coding."""
    key_bits, value_bits = choice.anchor_bits
    options: dict[str, Any] = {"key_anchor_bits": key_bits, "value_anchor_bits": value_bits, "exact": mode.coding.exact}
    if (key_bits, value_bits) == (8, 8):
        options |= WHOLE
    if choice.rungs != 1:
        options["rungs"] = choice.rungs
    return CacheCoding(**options)
