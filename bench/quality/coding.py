"""One text's cache, coded once with all planes, and any anchor of it decoded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lynx import Codec

from .choices import Axes, Choice, Shape, layout

Layers = Sequence[tuple[Tensor, Tensor]]
"""(K, V) for each layer, [kv_heads, tokens, head_dim]; layers may hold unequal numbers of tokens."""

ALL = 8
# Decoded tensors of all layers that are kept, K and V apart: one of K and five of V is what a row of the grid needs.
KEPT = 6
MAX_SINKS = 1024  # As many as the format allows.


class CodedCache:
    """Coded with 8 planes, whatever is asked of it later: planes hold the same bytes for every anchor width.

    `layers` are bfloat16 and are not changed. What comes out is float32.
    """

    def __init__(self, codec: Codec, layers: Layers) -> None:
        self._codec = codec
        self._layers = layers
        self._coded: dict[tuple[int, Axes], Sequence[Coded]] = {}
        self._decoded: dict[tuple[int, Axes, int, int], list[Tensor]] = {}  # the last used last

    def anchor(self, choice: Choice) -> list[tuple[Tensor, Tensor]]:
        """What is known of each layer once the anchor is there. The tensors may be handed out again: do not write."""
        count = len(self._layers)
        pairs = []
        for index in range(count):
            bits = choice.bits(index, count)
            key, value = (self._rows(index, role, bits[role], choice) for role in (0, 1))
            pairs.append((key, value))
        return pairs

    def _rows(self, index: int, role: int, bits: int, choice: Choice) -> Tensor:
        usual = (choice.key_bits, choice.value_bits)[role]
        if bits != usual:  # The one layer that differs is not worth a decoded cache.
            return self._decode_one(index, role, choice.axes, bits, choice.sink_tokens)
        return self._decode(role, choice.axes, bits, choice.sink_tokens)[index]

    def _decode(self, role: int, axes: Axes, bits: int, sinks: int) -> list[Tensor]:
        key = (role, axes, bits, sinks)
        rows = self._decoded.pop(key, None)
        if rows is None:
            rows = [self._decode_one(index, role, axes, bits, sinks) for index in range(len(self._layers))]
        self._decoded[key] = rows
        if len(self._decoded) > KEPT:
            del self._decoded[next(iter(self._decoded))]
        return rows

    def _decode_one(self, index: int, role: int, axes: Axes, bits: int, sinks: int) -> Tensor:
        if (role, axes) not in self._coded:
            self._coded[role, axes] = self._code(role, axes)
        coded = self._coded[role, axes][index]
        rows = coded.decode(bits)
        if sinks and axes is not Axes.RAW:
            # An anchor that holds all bits of a token gives it as all planes do: docs/wire-format.md, Decoding.
            rows[:, :sinks] = coded.first_rows[:, :sinks]
        return rows

    def _code(self, role: int, axes: Axes) -> Sequence[Coded]:
        tensors = [pair[role] for pair in self._layers]
        if axes.by_package(is_key=role == 0):
            return [Rotated(self._codec, tensor, Choice(ALL, ALL, axes=axes)) for tensor in tensors]
        if role == 0:
            return [Grouped(tensor, axes.group_tokens) for tensor in tensors]
        return [Grouped(tensor, None) for tensor in tensors]


class Rotated:
    """One tensor coded by the package itself, by rotation or raw."""

    def __init__(self, codec: Codec, source: Tensor, choice: Choice) -> None:
        heads, tokens, head_dim = source.shape
        self._codec = codec
        self._shape: Shape = (heads, tokens, head_dim)
        self._layout = layout(self._shape, ALL, choice)
        self._planes = self._layout.planes_through(0)
        self._coded = torch.empty(self._layout.bytes, dtype=torch.uint8)
        codec.encode(source, self._layout, self._coded)
        self.first_rows = _first_rows(self.decode(ALL))

    def decode(self, planes: int) -> Tensor:
        """From the first planes; all of raw are one."""
        rows = torch.empty(self._shape, dtype=torch.float32)
        self._codec.decode(self._layout, self._coded, min(planes, self._planes), rows)
        return rows


class Grouped:
    """One tensor coded without rotation, by the codec's rules for codes, scales and missing bits.

    With `group_tokens`, that many neighbouring values of a channel share a scale and a zero (the last group may be
    shorter), as KIVI's keys do (arXiv 2402.02750); with None, each head vector's do, as KIVI's values.
    """

    def __init__(self, source: Tensor, group_tokens: int | None) -> None:
        heads, tokens, head_dim = source.shape
        self._tokens = tokens
        values = source.float()
        if group_tokens is not None:
            # The last group is filled up with its own last row, which moves neither its least nor its greatest value.
            missing = -tokens % group_tokens
            filled = torch.cat([values, values[:, -1:].expand(-1, missing, -1)], dim=1)
            values = filled.view(heads, -1, group_tokens, head_dim)
            axis = 2
        else:
            axis = -1
        least, greatest = values.amin(dim=axis, keepdim=True), values.amax(dim=axis, keepdim=True)
        self._zero = least.half().float()
        self._scale = ((greatest - least) / 255).half().float()
        steps = torch.where(self._scale > 0, (values - self._zero) / self._scale, 0)
        self._codes = steps.round().clamp(0, 255).to(torch.uint8)
        self.first_rows = _first_rows(self.decode(ALL))

    def decode(self, planes: int) -> Tensor:
        """From the `planes` most significant bits; the missing ones at their midpoint."""
        missing = ALL - planes
        kept = (self._codes >> missing << missing).float()
        rows = self._zero + self._scale * (kept + ((1 << missing) - 1) / 2)
        return rows.flatten(1, 2)[:, : self._tokens] if rows.dim() == 4 else rows


Coded = Rotated | Grouped


def _first_rows(rows: Tensor) -> Tensor:
    """A copy of what sinks can need, so that the rest is freed."""
    return rows[:, :MAX_SINKS].clone()
