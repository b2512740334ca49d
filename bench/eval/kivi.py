"""KIVI's 4-bit cache (arXiv 2402.02750) as something to compare with: what it restores, and what it weighs.

K in groups of neighbouring tokens of one channel, V in groups of neighbouring channels of one token; each group has a
scale and a zero in fp16. KIVI keeps its last tokens in 16 bits, up to one group; so does this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

BITS = 4
GROUP = 32
_METADATA_BITS = 32


def restore(keys: Tensor, values: Tensor, group: int = GROUP) -> tuple[Tensor, Tensor]:
    """What a decoder sees of [heads, tokens, head_dim] bfloat16, in float32."""
    coded = keys.shape[1] // group * group
    k, v = keys.float(), values.float()
    if coded:
        k[:, :coded] = _groups(k[:, :coded].transpose(1, 2), group).transpose(1, 2)
        v[:, :coded] = _groups(v[:, :coded], group)
    return k, v


def cache_bytes(shapes: Sequence[tuple[int, int]], tokens: int, group: int = GROUP) -> int:
    """Of a whole cache, all that would be sent included; `shapes` are (heads, head_dim) of each layer."""
    bits = 0
    for heads, head_dim in shapes:
        coded = tokens // group * group
        key_groups = head_dim * (coded // group)
        value_groups = coded * -(-head_dim // group)
        bits += heads * ((key_groups + value_groups) * _METADATA_BITS + 2 * coded * head_dim * BITS)
        bits += heads * 2 * (tokens - coded) * head_dim * 16
    return bits // 8


def _groups(rows: Tensor, group: int) -> Tensor:
    """Quantize the last axis in groups, and restore it."""
    shape, length = rows.shape, rows.shape[-1]
    if length % group:  # The last group is shorter; what fills it moves neither its least nor its greatest value.
        rows = torch.cat([rows, rows[..., -1:].expand(*shape[:-1], -length % group)], dim=-1)
    grouped = rows.reshape(*shape[:-1], -1, group)
    least, greatest = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    zero, scale = least.half().float(), ((greatest - least) / (2**BITS - 1)).half().float()
    codes = torch.where(scale > 0, (grouped - zero) / scale, 0).round().clamp(0, 2**BITS - 1)
    restored: Tensor = (zero + scale * codes).reshape(*shape[:-1], -1)[..., :length]
    return restored
