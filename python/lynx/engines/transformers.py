"""The engine over Hugging Face transformers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from lynx._core import Sampled, Sampler, Sampling

from .base import EngineError, LayerShape, Prefilled, ProgressCallback, RowsCallback, UnsupportedModel
from .cache_layers import InPlaceLayer, LayerCallback, RowBuffers, SendingLayer

# On 2 cores 2,048 tokens take as long in chunks of 256 as in one pass; chunks of 128 cost some 10 % more.
PREFILL_CHUNK_TOKENS = 256


class TransformersEngine:
    """An `Engine` that runs a causal language model of transformers.

    The model is used as it is (dtype, device, attention implementation) and must be in evaluation mode.
    Every layer must keep attention's plain cache, K and V of one shape; anything else raises `UnsupportedModel`. Layers
    with a sliding window keep, and are sent, all rows, though they read only the last ones.
    """

    def __init__(self, model: PreTrainedModel, *, prefill_chunk_tokens: int = PREFILL_CHUNK_TOKENS) -> None:
        if prefill_chunk_tokens < 1:
            raise EngineError(f"prefill in chunks of {prefill_chunk_tokens} tokens; it has to be at least 1")
        self._prefill_chunk_tokens = prefill_chunk_tokens
        self._model: Any = model
        self._device = model.device
        self._dtype = model.dtype
        # transformers renamed the argument; the old name warns where both are known.
        names = inspect.signature(model.forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"
        self._layers = _probe_layers(self._model, self._cache_argument)
        self._context_tokens = 0
        self._rows: list[RowBuffers] = []
        self._sampler = Sampler(Sampling())
        self._tokens: list[int] = []  # the text so far: the prompt if it was given, else what came after it
        self._tokens_begin = 0  # the row of the first of them

    @property
    def layers(self) -> Sequence[LayerShape]:
        """The shape of each layer's cache."""
        return self._layers

    @property
    def prefill_chunk_tokens(self) -> int:
        """How many tokens of a prompt one pass takes; the last pass may take fewer."""
        return self._prefill_chunk_tokens

    def prefill(
        self,
        token_ids: Sequence[int],
        on_progress: ProgressCallback | None = None,
        on_rows: RowsCallback | None = None,
        sampler: Sampler | None = None,
    ) -> Prefilled:
        """Run the prompt in chunks, calling `on_progress` after each; see `Engine.prefill`."""
        total = len(token_ids)
        if total == 0:
            raise EngineError("prefill of an empty prompt; give at least one token")
        self._check_positions(total)
        rows = self._allocate(total)
        if on_rows is None:
            cache = Cache(layers=[InPlaceLayer(index, buffers, 0) for index, buffers in enumerate(rows)])
        else:
            cache = Cache(layers=[SendingLayer(index, buffers, on_rows) for index, buffers in enumerate(rows)])
        for begin in range(0, total, self._prefill_chunk_tokens):
            chunk = token_ids[begin : begin + self._prefill_chunk_tokens]
            logits = self._step(chunk, cache, logits_to_keep=1)
            if on_progress is not None:
                on_progress(begin + len(chunk), total)
        last = _for_sampler(logits)[0]
        first = (sampler or Sampler(Sampling())).sample(last, total, token_ids)
        layers = [] if on_rows else [(_to_wire(buffers.keys), _to_wire(buffers.values)) for buffers in rows]
        return Prefilled(first.token, last, layers)

    def start(
        self,
        context_tokens: int,
        max_new_tokens: int,
        *,
        sampler: Sampler | None = None,
        prompt: Sequence[int] | None = None,
    ) -> None:
        """Allocate the cache of a new request; see `Engine.start`."""
        if context_tokens < 1 or max_new_tokens < 1:
            raise EngineError(
                f"start({context_tokens}, {max_new_tokens}): context and new tokens must be at least 1 each"
            )
        if prompt is not None and len(prompt) != context_tokens:
            raise EngineError(f"a prompt of {len(prompt)} tokens was given for a context of {context_tokens}")
        self._sampler = sampler or Sampler(Sampling())
        if prompt is None and self._sampler.sampling.repetition_penalty != 1:
            raise EngineError("a repetition penalty counts the prompt's tokens; give decode(prompt=...)")
        self._check_positions(context_tokens + max_new_tokens)
        self._rows = self._allocate(context_tokens + max_new_tokens)
        self._context_tokens = context_tokens
        self._tokens = list(prompt or ())
        self._tokens_begin = context_tokens - len(self._tokens)

    def prompt_rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """Writable views of one layer's prompt rows; see `Engine.prompt_rows`."""
        if not self._rows:
            raise EngineError("prompt_rows before start: there is no cache yet; call start first")
        if not 0 <= layer < len(self._rows):
            raise EngineError(f"prompt_rows({layer}) of a model with layers 0 to {len(self._rows) - 1}")
        rows = self._rows[layer]
        return rows.keys[0, :, : self._context_tokens], rows.values[0, :, : self._context_tokens]

    def forward(self, token_ids: Sequence[int], at: int, before_layer: LayerCallback | None = None) -> list[Sampled]:
        """Run tokens in one pass and sample the next one after each; see `Engine.forward`."""
        logits = self.logits(token_ids, at, before_layer)
        history = token_ids
        if self._sampler.sampling.repetition_penalty != 1:
            # Passes within this one have put their own tokens behind; they are not this one's history.
            history = self._tokens[: at - self._tokens_begin] + list(token_ids)
        return self._sampler.sample_rows(_for_sampler(logits), at + 1, history)

    def logits(self, token_ids: Sequence[int], at: int, before_layer: LayerCallback | None = None) -> Tensor:
        """As `forward`, but return the next token's scores after each, [tokens, vocabulary].

        Not normalized, in the model's dtype, on its device; an inference tensor of the caller's own.
        """
        if not self._rows:
            raise EngineError("forward before start: there is no cache yet; call start first")
        if len(token_ids) == 0:
            raise EngineError("forward of no tokens; give at least one")
        written = self._tokens_begin + len(self._tokens)
        capacity = self._rows[0].capacity
        if not self._context_tokens <= at <= written:
            raise EngineError(
                f"forward at row {at}: the context has {self._context_tokens} rows, and {written} are written"
            )
        if at + len(token_ids) > capacity:
            # Checked before the pass: a layer that refused halfway would leave the layers unequal.
            raise EngineError(
                f"forward of {len(token_ids)} tokens onto {at} rows, but start allocated {capacity}"
                "; start with more new tokens"
            )
        self._tokens[at - self._tokens_begin :] = token_ids
        layers = [InPlaceLayer(index, rows, at, before_layer) for index, rows in enumerate(self._rows)]
        return self._step(token_ids, Cache(layers=layers), logits_to_keep=0)

    def _step(self, token_ids: Sequence[int], cache: Cache, logits_to_keep: int) -> Tensor:
        """One pass; `logits_to_keep` counts positions from the end, 0 meaning all."""
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([list(token_ids)], dtype=torch.long, device=self._device),
                use_cache=True,
                logits_to_keep=logits_to_keep,
                **{self._cache_argument: cache},
            )
        logits: Tensor = output.logits[0]
        return logits

    def _allocate(self, capacity: int) -> list[RowBuffers]:
        return [RowBuffers(shape, capacity, self._dtype, self._device) for shape in self._layers]

    def _check_positions(self, tokens: int) -> None:
        limit = getattr(self._model.config, "max_position_embeddings", None)
        if limit is not None and tokens > limit:
            raise EngineError(
                f"{tokens} tokens asked of a model that was made for {limit}; shorten the context or the answer"
            )


def _to_wire(buffer: Tensor) -> Tensor:
    """[1, kv_heads, tokens, head_dim] -> contiguous bfloat16 [kv_heads, tokens, head_dim], always a copy."""
    return buffer[0].to(torch.bfloat16, copy=True).contiguous()


def _for_sampler(logits: Tensor) -> Tensor:
    return logits.to(device="cpu", dtype=torch.float32).contiguous()


def _probe_layers(model: Any, cache_argument: str) -> tuple[LayerShape, ...]:
    """Run one token and read what cache the model really keeps: configurations do not tell it all."""
    name = type(model).__name__
    if model.training:
        raise EngineError(f"{name} is in training mode; call model.eval() first")
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        token = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        model(input_ids=token, use_cache=True, logits_to_keep=1, **{cache_argument: cache})
    shapes = []
    for index, layer in enumerate(cache.layers):
        # A sliding window is in the model's mask, whatever the cache holds: here that is all rows.
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise UnsupportedModel(
                f"layer {index} of {name} keeps a {type(layer).__name__}; only attention's plain cache "
                "can be streamed as yet: choose a model without state-space or shared layers"
            )
        if layer.keys is None or layer.values is None or layer.keys.shape != layer.values.shape:
            raise UnsupportedModel(
                f"layer {index} of {name} keeps K and V of unequal shapes; only equal ones can be streamed as yet"
            )
        shapes.append(LayerShape(layer.keys.shape[1], layer.keys.shape[3]))
    if not shapes:
        raise UnsupportedModel(f"{name} keeps no cache at all; choose a causal language model with attention")
    return tuple(shapes)
