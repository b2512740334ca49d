"""What the decode loop asks of an inference engine, whatever framework runs the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from lynx._core import Sampled, Sampler

ProgressCallback = Callable[[int, int], None]
"""Called with (tokens done, tokens in all)."""


RowsCallback = Callable[[int, int, "Tensor", "Tensor"], None]
"""Called with (layer, first token, K, V): bfloat16 [kv_heads, tokens, head_dim], of any strides. Whoever holds the
tensors keeps their memory; nobody rewrites it."""


class EngineError(ValueError):
    """A call that the engine cannot obey: what was asked, why not, and what to do instead."""


class UnsupportedModel(EngineError):  # noqa: N818 - reads as what happened
    """The model keeps a cache that this engine cannot stream."""


class LayerShape(NamedTuple):
    """The shape of one layer's K, and of its V, apart from the number of tokens."""

    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What prefill hands to the sender.

    `logits`, float32 [vocabulary] on the CPU, are the scores of the token after the prompt, on its exact cache, and
    `first_token` is what was sampled from them. `layers` holds (K, V) for each layer, contiguous
    bfloat16 [kv_heads, tokens, head_dim]; the tensors are the caller's own and no later call of the engine
    changes them. It is empty if the rows went to `on_rows`.
    """

    first_token: int
    logits: Tensor
    layers: list[tuple[Tensor, Tensor]]


class Engine(Protocol):
    """One request at a time: prefill on one node, or `start` and `forward` on another.

    Decoding works on one cache that `start` allocates. Rows [0, context_tokens) belong to whoever fills
    `prompt_rows`, and may be rewritten between two calls of `forward`, or within one from `before_layer`; the rows
    after them belong to the engine. The row of a token is its index in the text, the prompt's included.
    Not thread-safe: no two threads at once, and nobody else writes prompt rows while `forward` runs.
    """

    @property
    def layers(self) -> Sequence[LayerShape]:
        """The shape of each layer's cache."""
        ...

    @property
    def prefill_chunk_tokens(self) -> int:
        """How many tokens of a prompt one pass takes; the last pass may take fewer."""
        ...

    def prefill(
        self,
        token_ids: Sequence[int],
        on_progress: ProgressCallback | None = None,
        on_rows: RowsCallback | None = None,
        sampler: Sampler | None = None,
    ) -> Prefilled:
        """Run the prompt and return its cache and the token after it. A decode in progress is left alone.

        `on_rows` gets each layer's rows of each chunk as soon as they are computed, layer by layer within a chunk,
        on this thread: what it does should be short. What it raises ends prefill. Greedy without a `sampler`.
        """
        ...

    def start(
        self,
        context_tokens: int,
        max_new_tokens: int,
        *,
        sampler: Sampler | None = None,
        prompt: Sequence[int] | None = None,
    ) -> None:
        """Allocate the cache of a new request, whose prompt rows are zero until they are written.

        `max_new_tokens` bounds the rows that may be there at one time after the prompt, drafts included. Greedy
        without a `sampler`; one with a repetition penalty needs the `prompt`, whose tokens count for it.
        """
        ...

    def prompt_rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """Writable views (K, V) of `layer`'s prompt rows: [kv_heads, context_tokens, head_dim].

        Strided, not contiguous over heads; in the model's dtype, on its device. Valid until the next `start`.
        """
        ...

    def forward(
        self, token_ids: Sequence[int], at: int, before_layer: Callable[[int], None] | None = None
    ) -> Sequence[Sampled]:
        """Write `token_ids` into the rows from `at` on, in one pass; return the token sampled after each of them.

        `at` is behind the prompt, and no further than what is written; the rows behind this pass's are dropped.
        `before_layer` is called with each layer's index, in order, before its attention reads the cache: it may wait
        for and write prompt rows of that layer and of those behind it, and call `forward` again: for this pass's last
        token in its row, from which further drafting starts, and for rows behind it. This pass's result stays as it
        is. What it raises ends the pass.
        """
        ...
