"""Transfers over the link of a known rate: the whole rate, and anchors among the residuals of other requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import loopback
from .ends import Kind, Pair, native
from .link import Link
from .results import Anchor, Anchors, LinkRun

PROVIDER_ORDER = ("net", "tcp", "tcp;ofi_rxm")
BACKLOGS = (0, 1, 8, 64)

ANCHOR_BYTES = 13_271_040
"""Of SmolLM2's cache of 2,048 tokens at 4.5 bits a value."""

_SATURATING_S = 0.3
_BETWEEN_ANCHORS_S = 0.1
_ARENA_SLACK = 64 << 20
_CODED_OVER_RESIDUAL = 8.25 / 7
"""What a backlog takes of the arena: all planes and the scales, over its residual."""


def of_rate(bits_per_second: int) -> str:
    """In words."""
    if bits_per_second < 10**9:
        return f"{bits_per_second / 10**6:g} Mbit/s"
    return f"{bits_per_second / 10**9:g} Gbit/s"


def transfer_bytes(bits_per_second: int) -> int:
    """1 GiB, but what takes some ten seconds on a slow link."""
    return (1 << 30) if bits_per_second >= 10**9 else (128 << 20)


def transfer(link: Link, program: Path, provider: str, contender: str) -> LinkRun:
    """One transfer from one side to the other."""
    total_bytes = transfer_bytes(link.bits_per_second)
    with pair_across(link, program, provider, contender, total_bytes) as pair:
        goodput = pair.goodput(loopback.CHUNK_BYTES, total_bytes)
    share = goodput * 8 / link.bits_per_second
    return LinkRun(contender, link.bits_per_second, link.mtu, total_bytes, share, share / link.payload_share)


def anchors(
    link: Link, program: Path, provider: str, backlogs: int, count: int, on_step: Callable[[float], None]
) -> Anchors:
    """The times of `count` anchors and of one before them, which may find its connection cold."""
    residual_bytes = backlog_bytes(link.bits_per_second, count + 1) if backlogs else 0
    each = residual_bytes // max(backlogs, 1)
    memory_bytes = int(residual_bytes * _CODED_OVER_RESIDUAL) + 2 * ANCHOR_BYTES + _ARENA_SLACK
    taken = []
    with pair_across(link, program, provider, loopback.LYNX, memory_bytes) as pair:
        command = f"contend {backlogs} {each} {ANCHOR_BYTES} {count + 1}"
        pair.receiver.tell(command)
        pair.receiver.hear()
        pair.sender.tell(command)
        for done in range(count + 1):
            sent, received = pair.sender.hear(), pair.receiver.hear()
            taken.append(
                Anchor(
                    from_offer=(received["end_ns"] - sent["offered_ns"]) / 1e9,
                    from_put=(received["end_ns"] - sent["put_ns"]) / 1e9,
                    backlog_before_bytes=sent["backlog_before_bytes"],
                    backlog_left_bytes=sent["backlog_left_bytes"],
                )
            )
            on_step((done + 1) / (count + 1))
    return Anchors(link.bits_per_second, backlogs, ANCHOR_BYTES, taken)


def backlog_bytes(bits_per_second: int, anchors_count: int) -> int:
    """Residual bytes that last for all anchors, if these go first."""
    anchor_s = ANCHOR_BYTES * 8 / bits_per_second
    seconds = _SATURATING_S + anchors_count * (anchor_s + _BETWEEN_ANCHORS_S)
    return int(bits_per_second / 8 * seconds)


def pair_across(link: Link, program: Path, provider: str, contender: str, memory_bytes: int) -> Pair:
    """A sender on one side and a receiver on the other."""
    kinds: list[Kind] = [native(contender, program, provider, memory_bytes, address) for address in link.addresses]
    receiver = kinds[0].start("receive", link.prefix(0))
    try:
        sender = kinds[1].start("send", link.prefix(1))
    except BaseException:
        receiver.close()
        raise
    return Pair.connected(receiver, sender)
