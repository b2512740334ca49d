"""The ways to move a cache that `lynx decode` and `lynx demo` compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lynx._core import MAX_RUNGS, MAX_SINK_TOKENS, Coding
from lynx.policies import AnchorFirst, Blocking, Policy, Tier
from lynx.transfer import RAW, CacheCoding


@dataclass(frozen=True, slots=True)
class Mode:
    """A coding, a policy, and the mode whose tokens it should give."""

    name: str
    coding: CacheCoding
    policy: Policy
    equal_to: str | None
    about: str


MODES = {
    mode.name: mode
    for mode in (
        Mode("bf16", RAW, Blocking(), None, "the cache as it is, blocking"),
        Mode("int8", CacheCoding(), Blocking(), "bf16", "all 8 planes, blocking"),
        Mode("int4", CacheCoding(parts=1), Blocking(Tier.ANCHOR), "int8", "the anchor alone, blocking, never verified"),
        Mode("lynx", CacheCoding(), AnchorFirst(), "int8", "drafts on the anchor, verified on all 8 planes"),
        Mode(
            "lynx-exact", CacheCoding(exact=True), AnchorFirst(), "bf16", "drafts on the anchor, verified bit for bit"
        ),
    )
}


def parse_modes(text: str) -> Sequence[Mode]:
    """Modes from "bf16,int8". Raises `ValueError`."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MODES:
            raise ValueError(f"mode {name!r} is not known: choose from {', '.join(MODES)}")
    if len(set(names)) != len(names):
        raise ValueError(f"a mode is named twice in {text!r}")
    return [MODES[name] for name in names]


def coding_to_json(coding: CacheCoding) -> dict[str, object]:
    """For the request that asks a prefill node for a transfer."""
    return {
        "coding": coding.coding.name,
        "parts": coding.parts,
        "rungs": coding.rungs,
        "key_anchor_bits": coding.key_anchor_bits,
        "value_anchor_bits": coding.value_anchor_bits,
        "sink_tokens": coding.sink_tokens,
        "thin_last_value": coding.thin_last_value,
    }


def coding_from_json(message: dict[str, object]) -> CacheCoding:
    """The reverse. Raises `ValueError` for anything but what `coding_to_json` writes."""

    def number(key: str, low: int, high: int) -> int:
        value = message.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{key} is {value!r}; it has to be {low} to {high}")
        return value

    def flag(key: str) -> bool:
        value = message.get(key)
        if not isinstance(value, bool):
            raise ValueError(f"{key} is {value!r}; it has to be true or false")
        return value

    name = message.get("coding")
    if name not in ("RAW", "PLANES"):
        raise ValueError(f"coding is {name!r}; it has to be RAW or PLANES")
    if name == "RAW":
        return RAW
    rungs = number("rungs", 1, MAX_RUNGS)
    parts = number("parts", 1, 2 + rungs)
    if parts not in (1, 1 + rungs, 2 + rungs):
        raise ValueError(f"parts is {parts}; with {rungs} rungs it has to be 1, {1 + rungs} or {2 + rungs}")
    return CacheCoding(
        Coding.PLANES,
        parts,
        number("key_anchor_bits", 1, 8),
        number("value_anchor_bits", 1, 8),
        number("sink_tokens", 0, MAX_SINK_TOKENS),
        flag("thin_last_value"),
        exact=parts == 2 + rungs,
        rungs=rungs,
    )
