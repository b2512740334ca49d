"""An engine whose passes cost virtual seconds, and whose drafts are wrong as often as the cost model says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lynx.simulation.clock import VirtualClock

WORD = 2**64
VOCABULARY = 32_000


class SimulatedToken(NamedTuple):
    """As `lynx.Sampled`."""

    token: int
    margin: float


@dataclass(slots=True)
class HeldPart:
    """In place of a layer's prompt rows: which part they hold."""

    part: int = -1


class SimulatedEngine:
    """What the decode loop uses of an `Engine`.

    Each text has one continuation that the reference tier gives, by a hash of the text and the `seed`. The hash also
    draws a number u for each position, and a cache of part p gives that token if u < acceptance[p], another otherwise.
    So what a part gets right all finer ones do, and behind a wrong token everything is wrong.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        clock: VirtualClock,
        *,
        step_s: float,
        token_s: float,
        acceptance: Sequence[float],
        seed: int = 0,
    ) -> None:
        """`step_s` is a pass over one token, `token_s` what each more adds; `acceptance` is by part."""
        self.layers = shapes
        self._clock = clock
        self._step_s = step_s
        self._token_s = token_s
        self._acceptance = acceptance
        self._seed = seed
        self._rows = [(HeldPart(), HeldPart()) for _ in shapes]
        self._context_tokens = 0
        self._texts = [0]  # the hash of the text before each row behind the prompt

    def start(self, context_tokens: int, max_new_tokens: int, *, sampler: object = None, prompt: object = None) -> None:
        """A new request."""
        self._rows = [(HeldPart(), HeldPart()) for _ in self.layers]
        self._context_tokens = context_tokens
        self._texts = [_mix(self._seed)]

    def prompt_rows(self, layer: int) -> tuple[HeldPart, HeldPart]:
        """What stands for the rows of K and V."""
        return self._rows[layer]

    def forward(
        self, token_ids: Sequence[int], at: int, before_layer: Callable[[int], None] | None = None
    ) -> list[SimulatedToken]:
        """Spend the time of a pass, layer by layer; the tokens are those of the coarsest part that it has read."""
        first = at - self._context_tokens
        text = self._texts[first]
        del self._texts[first + 1 :]
        for token in token_ids:
            text = _mix(text ^ token)
            self._texts.append(text)
        texts = self._texts[first + 1 :]
        layer_s = (self._step_s + (len(token_ids) - 1) * self._token_s) / len(self.layers)
        part = len(self._acceptance)
        for layer, (keys, values) in enumerate(self._rows):
            if before_layer is not None:
                before_layer(layer)
            part = min(part, keys.part, values.part)
            self._clock.spend(layer_s)
        if part < 0:
            raise ValueError("a simulated pass read a layer that holds nothing yet")
        return [self._next(text, part) for text in texts]

    def _next(self, text: int, part: int) -> SimulatedToken:
        draw = _mix(text)
        token = draw % VOCABULARY
        right = _mix(draw) / WORD < self._acceptance[part]
        return SimulatedToken(token if right else (token + 1) % VOCABULARY, math.inf)


def _mix(word: int) -> int:
    """SplitMix64's step (Steele, Lea and Flood, OOPSLA 2014): a well-spread hash of 64 bits."""
    word = (word + 0x9E3779B97F4A7C15) % WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)
