"""Which part each layer's prompt rows hold, and how they get to hold a finer one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lynx._core import CorruptData, PlaneReceiver, ShardedReceiver, TensorRole
from lynx.policies.base import Tier
from lynx.runtime.manifest import reference_part, tier_of

if TYPE_CHECKING:
    from lynx.engines.base import Engine

ANCHOR = 0


class PromptCache:
    """The engine's prompt rows, layer by layer. A layer may hold a finer part than another."""

    def __init__(self, receiver: PlaneReceiver | ShardedReceiver, engine: Engine) -> None:
        self._receiver = receiver
        self._engine = engine
        self._manifest = receiver.manifest
        self._held = [-1] * len(engine.layers)
        self._part = -1
        self._layers_ready = 0
        self.last_part: int = self._manifest.parts - 1
        self.reference = reference_part(self._manifest)
        self._usable = self.last_part

    @property
    def held(self) -> int:
        """The finest part that every layer has been brought to."""
        return min(self._held)

    def part(self) -> int:
        """The finest part that has arrived, with every part before it, for all layers; -1: none."""
        while self._part < self.last_part and self._receiver.ready(self._part + 1):
            self._part += 1
        return self._part

    def layers_ready(self) -> int:
        """How many layers, from the first one on, have the reference tier."""
        layers = len(self._held)
        while self.reference >= 0 and self._layers_ready < layers and self.layer_ready(self._layers_ready):
            self._layers_ready += 1
        return self._layers_ready

    def layer_ready(self, layer: int) -> bool:
        """Has this layer's reference tier arrived?"""
        return self._receiver.layer_ready(layer, self.reference)

    def usable_part(self) -> int | None:
        """The finest that every layer can be brought to, whatever has become of the transfer."""
        part = self._receiver.tier
        return None if part is None or self._usable < 0 else min(part, self._usable)

    def tier(self) -> Tier:
        """What the layers hold, all of them."""
        return tier_of(self._manifest, self.held)

    def decode_next_layer(self, part: int) -> bool:
        """Decode one layer whose `part` has arrived since; whether there was one."""
        for layer, held in enumerate(self._held):
            if held < part and self._receiver.layer_ready(layer, part):
                self.decode(layer, part)
                return True
        return False

    def keep_up(self, part: int) -> None:
        """Bring every layer to the finest part up to `part` that it has by now."""
        for layer, held in enumerate(self._held):
            finest = held
            while finest < part and self._receiver.layer_ready(layer, finest + 1):
                finest += 1
            if finest > held:
                self.decode(layer, finest)

    def bring_to(self, part: int) -> None:
        """Decode every layer that holds less than `part`, which is complete."""
        for layer in range(len(self._held)):
            self.bring_layer_to(layer, part)

    def bring_layer_to(self, layer: int, part: int) -> None:
        """Decode one layer if it holds less than `part`, which is complete for it."""
        if self._held[layer] < part:
            self.decode(layer, part)

    def decode(self, layer: int, part: int) -> None:
        """Write `part` of a layer into the engine's rows. Raises `CorruptData`."""
        keys, values = self._engine.prompt_rows(layer)
        self._held[layer] = -1  # a decode that fails leaves the rows half written
        try:
            self._receiver.decode(layer, TensorRole.KEY, part, keys)
            self._receiver.decode(layer, TensorRole.VALUE, part, values)
        except CorruptData:
            self._usable = min(self._usable, part - 1)
            raise
        self._held[layer] = part
