"""A forward pass that stops before each layer, so that the loop can wait, draft and yield events in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from lynx._core import Sampled
    from lynx.engines.base import Engine


class LayerwisePass:
    """One call of `Engine.forward`, taken layer by layer.

    The engine's frames stay where they are, on a stack of their own, while the caller does other things: the same
    engine's other passes among them. All on one thread, so that nothing runs at the same time. For use as a context:
    what is not finished at its end is unwound.
    """

    def __init__(self, engine: Engine, token_ids: Sequence[int], at: int) -> None:
        self._engine = engine
        self._token_ids = token_ids
        self._at = at
        self._stack = greenlet(self._run)
        self.sampled: Sequence[Sampled] = ()

    def next_layer(self) -> int | None:
        """Compute up to the next layer that is about to read the cache; None at the end, when `sampled` is there."""
        self._stack.parent = getcurrent()
        layer: int | None = self._stack.switch()
        return layer

    def _run(self) -> None:
        self.sampled = self._engine.forward(self._token_ids, self._at, self._before_layer)

    def _before_layer(self, layer: int) -> None:
        parent = self._stack.parent
        assert parent is not None
        parent.switch(layer)

    def __enter__(self) -> LayerwisePass:
        """Return the pass itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unwind a pass that is not finished."""
        if self._stack:  # started, and not at its end
            self._stack.parent = getcurrent()
            self._stack.throw(GreenletExit)
