"""What is compared: how a cache's anchor may be coded, and what that costs in bits a value."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lynx import PlaneLayout, TensorSpec
from lynx.transfer import RAW as RAW_CODING
from lynx.transfer import CacheCoding

METADATA_BITS = 32  # A scale and a zero, fp16 each, for every group.


class Axes(enum.Enum):
    """Along which axes values share a scale and a zero."""

    ROTATION = "rotation"  # lynx.Codec: each head vector is rotated and is one group
    CHANNELS_64 = "KIVI 64"  # K in groups of 64 tokens of one channel, V's head vectors as they are
    CHANNELS_32 = "KIVI 32"
    KEY_CHANNELS_64 = "K as KIVI 64"  # and V rotated
    RAW = "raw"  # bf16, the control

    @property
    def group_tokens(self) -> int:
        """Of K's groups along a channel."""
        return 32 if self is Axes.CHANNELS_32 else 64

    def by_package(self, is_key: bool) -> bool:
        """Whether `lynx.Codec` codes K, or V, so."""
        return self in (Axes.ROTATION, Axes.RAW) or (self is Axes.KEY_CHANNELS_64 and not is_key)


class Thin(enum.Enum):
    """The one layer whose V has a plane less in the anchor: it pays for the sinks of all."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"

    def layer(self, layers: int) -> int:
        """Its index."""
        return {Thin.FIRST: 0, Thin.MIDDLE: layers // 2, Thin.LAST: layers - 1}[self]


@dataclass(frozen=True, slots=True)
class Choice:
    """An anchor: the first planes of K and of V, and all 8 of the first `sink_tokens` rows of each layer."""

    key_bits: int
    value_bits: int
    sink_tokens: int = 0
    axes: Axes = Axes.ROTATION
    thin: Thin | None = None

    @property
    def name(self) -> str:
        """Unique among choices, and short."""
        if self.axes is Axes.RAW:
            return "raw"
        name = f"{self.key_bits} + {self.value_bits}"
        if self.axes is not Axes.ROTATION:
            name = f"{self.axes.value}: {name}"
        if self.sink_tokens:
            name += f", {self.sink_tokens} sink{'s' if self.sink_tokens > 1 else ''}"
        if self.thin is not None:
            name += f", V {self.value_bits - 1} in the {self.thin.value} layer"
        return name

    def bits(self, layer: int, layers: int) -> tuple[int, int]:
        """Planes of K and of V in the anchor of one of `layers` layers."""
        thinner = self.thin is not None and layer == self.thin.layer(layers)
        return self.key_bits, self.value_bits - thinner


def of_coding(how: CacheCoding) -> Choice:
    """The anchor that the package sends."""
    thin = Thin.LAST if how.thin_last_value else None
    return Choice(how.key_anchor_bits, how.value_anchor_bits, how.sink_tokens, thin=thin)


# The raw control is coded and decoded like the others, but without loss, so that any difference is a fault of the
# measurement.
RAW = Choice(8, 8, axes=Axes.RAW)
DEFAULT = of_coding(CacheCoding())
CANDIDATES = (Choice(3, 3), Choice(4, 4), Choice(5, 3), Choice(5, 3, 4), DEFAULT, Choice(5, 5), Choice(8, 8), RAW)


def _grid() -> Iterator[Choice]:
    # Neighbours share K's anchor, so that it is decoded once.
    widths = range(2, 7)
    for sinks in (0, 4):
        yield from (Choice(k, v, sinks) for k in widths for v in widths)
    for key, value in ((4, 4), (5, 3)):
        yield from (Choice(key, value, sinks) for sinks in (1, 2))
    yield Choice(5, 3, 8)
    yield from (Choice(5, 3, 4, thin=thin) for thin in Thin)
    yield from (Choice(5, 3, sinks, thin=Thin.LAST) for sinks in (1, 2))
    for axes, pairs in (
        (Axes.CHANNELS_64, ((3, 3), (4, 4), (5, 3), (5, 5), (6, 2), (6, 6))),
        (Axes.CHANNELS_32, ((3, 3), (4, 3), (4, 4))),
    ):
        for sinks in (0, 4):
            yield from (Choice(k, v, sinks, axes) for k, v in pairs)
    yield from (Choice(k, v, 4, Axes.KEY_CHANNELS_64) for k, v in ((4, 4), (5, 3)))
    yield Choice(8, 8)
    yield RAW


def _on_cross(choice: Choice) -> bool:
    usual = choice.axes is Axes.ROTATION and choice.thin is None
    return usual and (choice.value_bits in (3, 4) or choice.key_bits in (4, 5))


GRID = tuple(_grid())
# Where a score takes seconds: K's widths at V's usual ones and the other way round, and one of each question.
COARSE = (
    *(choice for choice in GRID if choice.sink_tokens == 4 and _on_cross(choice)),
    Choice(6, 2, 4),
    *(Choice(5, 3, sinks) for sinks in (0, 1, 2, 8)),
    Choice(4, 4),
    *(Choice(5, 3, 4, thin=thin) for thin in (Thin.FIRST, Thin.LAST)),
    Choice(5, 3, 1, thin=Thin.LAST),
    *(Choice(key, value, sinks, Axes.CHANNELS_64) for key, value in ((4, 4), (5, 3)) for sinks in (0, 4)),
    *(Choice(4, 4, sinks, Axes.CHANNELS_32) for sinks in (0, 4)),
    *(Choice(key, value, 4, Axes.KEY_CHANNELS_64) for key, value in ((4, 4), (5, 3))),
    Choice(8, 8),
    RAW,
)
# The default, its neighbours in cost, and what may replace it: for texts that no choice was made on.
FINALISTS = (
    Choice(4, 4),
    Choice(4, 4, 4),
    *(Choice(5, 3, sinks) for sinks in (0, 1, 4)),
    *(Choice(5, 3, sinks, thin=Thin.LAST) for sinks in (1, 4)),
    *(Choice(key, value, 4, Axes.KEY_CHANNELS_64) for key, value in ((4, 4), (5, 3))),
    RAW,
)

Shape = tuple[int, int, int]
"""[heads, tokens, head_dim] of a layer's K, and of its V."""


def layout(shape: Shape, bits: int, choice: Choice) -> PlaneLayout:
    """Of one K or V tensor as the package sends it: by rotation, or raw."""
    if choice.axes is Axes.RAW:
        return PlaneLayout(TensorSpec(*shape, coding=RAW_CODING.coding))
    return PlaneLayout(TensorSpec(*shape, anchor_bits=bits, sink_tokens=choice.sink_tokens))


def bits_per_value(shapes: Sequence[Shape], choice: Choice) -> float:
    """What the anchor of a whole cache costs, all that is sent included: planes, scales, zeros and sinks."""
    size = values = 0
    for index, shape in enumerate(shapes):
        for bits, is_key in zip(choice.bits(index, len(shapes)), (True, False), strict=True):
            size += _anchor_bits(shape, bits, is_key, choice)
            values += shape[0] * shape[1] * shape[2]
    return size / values


def _anchor_bits(shape: Shape, bits: int, is_key: bool, choice: Choice) -> int:
    if choice.axes.by_package(is_key):
        return 8 * int(layout(shape, bits, choice).part(0).bytes)
    heads, tokens, head_dim = shape
    groups = heads * tokens
    if is_key:
        groups = heads * head_dim * -(-tokens // choice.axes.group_tokens)
    sinks = heads * head_dim * min(choice.sink_tokens, tokens) * (8 - bits)
    return heads * tokens * head_dim * bits + groups * METADATA_BITS + sinks
