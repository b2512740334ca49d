"""The engine over Hugging Face transformers: preallocated cache buffers that a codec may rewrite in place."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from .base import EngineError, LayerShape, Prefilled, ProgressCallback, RowsCallback, UnsupportedModel

# On 2 cores 2,048 tokens take as long in chunks of 256 as in one pass; chunks of 128 cost some 10 % more.
PREFILL_CHUNK_TOKENS = 256


class InPlaceLayer(DynamicLayer):
    """One layer's cache over two buffers allocated once, [1, kv_heads, capacity, head_dim].

    `update` writes the new rows after the last one and returns views: a step allocates and copies no other.
    Whoever holds the buffers may rewrite rows below `length` between two passes.
    """

    def __init__(self, shape: LayerShape, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        # Allocated outside inference mode: an inference tensor could not be written from plain code later.
        size = (1, shape.kv_heads, capacity, shape.head_dim)
        self.key_buffer = torch.zeros(size, dtype=dtype, device=device)
        self.value_buffer = torch.zeros(size, dtype=dtype, device=device)
        self.device = device
        self.dtype = dtype
        self.capacity = capacity
        self.is_initialized = True
        self.resize(0)

    def resize(self, length: int) -> None:
        """Set the number of rows that attention sees; rows that become visible keep what the buffer holds."""
        self.length = length
        self.keys = self.key_buffer[:, :, :length]
        self.values = self.value_buffer[:, :, :length]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append rows [1, kv_heads, n, head_dim]; return views of all rows."""
        begin, end = self.length, self.length + key_states.shape[-2]
        if end > self.capacity:
            raise EngineError(f"{end} rows asked of a cache layer of {self.capacity}")
        self.key_buffer[:, :, begin:end].copy_(key_states)
        self.value_buffer[:, :, begin:end].copy_(value_states)
        self.resize(end)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """The number of rows."""
        return self.length

    def get_max_length(self) -> int:
        """The number of rows that the buffers hold."""
        return self.capacity

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last rows; as in transformers, their number is given as a negative one."""
        if not -self.length <= tokens_to_remove <= 0:
            raise EngineError(f"crop({tokens_to_remove}) asked of a cache layer of {self.length} rows")
        self.resize(self.length + tokens_to_remove)

    def reset(self) -> None:
        """Forget all rows, keep the buffers."""
        self.resize(0)


class SendingLayer(InPlaceLayer):
    """One layer's cache during prefill that hands over its new rows before attention reads them."""

    def __init__(
        self,
        shape: LayerShape,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        index: int,
        on_rows: RowsCallback,
    ) -> None:
        super().__init__(shape, capacity, dtype, device)
        self.index = index
        self.on_rows = on_rows

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append rows, then hand them over; see `InPlaceLayer.update`."""
        begin = self.length
        rows = super().update(key_states, value_states, *args, **kwargs)
        # Rows of prefill are never written again: of a bf16 model these are views.
        keys, values = (buffer[0, :, begin:].to(torch.bfloat16) for buffer in rows)
        self.on_rows(self.index, begin, keys, values)
        return rows


class TransformersEngine:
    """An `Engine` that runs a causal language model of transformers.

    The model is used as it is (dtype, device, attention implementation) and must be in evaluation mode.
    Every layer must keep plain full attention's cache, K and V of one shape; anything else raises
    `UnsupportedModel`.
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
        self._cache: Cache | None = None
        self._cache_layers: list[InPlaceLayer] = []

    @property
    def layers(self) -> Sequence[LayerShape]:
        """The shape of each layer's cache."""
        return self._layers

    @property
    def prefill_chunk_tokens(self) -> int:
        """How many tokens of a prompt one pass takes; the last pass may take fewer."""
        return self._prefill_chunk_tokens

    @property
    def length(self) -> int:
        """Rows now in the cache, the prompt's included; 0 before `start`."""
        return self._cache_layers[0].length if self._cache_layers else 0

    def prefill(
        self,
        token_ids: Sequence[int],
        on_progress: ProgressCallback | None = None,
        on_rows: RowsCallback | None = None,
    ) -> Prefilled:
        """Run the prompt in chunks, calling `on_progress` after each; see `Engine.prefill`."""
        total = len(token_ids)
        if total == 0:
            raise EngineError("prefill of an empty prompt; give at least one token")
        self._check_positions(total)
        cache_layers = self._allocate(total) if on_rows is None else self._allocate_sending(total, on_rows)
        cache = Cache(layers=cache_layers)
        first_token = 0
        for begin in range(0, total, self._prefill_chunk_tokens):
            chunk = token_ids[begin : begin + self._prefill_chunk_tokens]
            first_token = int(self._step(chunk, cache, logits_to_keep=1)[0].argmax())
            if on_progress is not None:
                on_progress(begin + len(chunk), total)
        if on_rows is not None:
            return Prefilled(first_token, [])
        layers = [(_to_wire(layer.key_buffer), _to_wire(layer.value_buffer)) for layer in cache_layers]
        return Prefilled(first_token, layers)

    def start(self, context_tokens: int, max_new_tokens: int) -> None:
        """Allocate the cache of a new request; see `Engine.start`."""
        if context_tokens < 1 or max_new_tokens < 1:
            raise EngineError(
                f"start({context_tokens}, {max_new_tokens}): context and new tokens must be at least 1 each"
            )
        self._check_positions(context_tokens + max_new_tokens)
        self._cache_layers = self._allocate(context_tokens + max_new_tokens)
        self._cache = Cache(layers=self._cache_layers)
        self._context_tokens = context_tokens
        for layer in self._cache_layers:
            layer.resize(context_tokens)

    def prompt_rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """Writable views of one layer's prompt rows; see `Engine.prompt_rows`."""
        if self._cache is None:
            raise EngineError("prompt_rows before start: there is no cache yet; call start first")
        if not 0 <= layer < len(self._cache_layers):
            raise EngineError(f"prompt_rows({layer}) of a model with layers 0 to {len(self._cache_layers) - 1}")
        rows = self._cache_layers[layer]
        return (
            rows.key_buffer[0, :, : self._context_tokens],
            rows.value_buffer[0, :, : self._context_tokens],
        )

    def forward(self, token_ids: Sequence[int]) -> list[int]:
        """Append tokens in one pass; return the greedy next token after each."""
        tokens: list[int] = self.logits(token_ids).argmax(dim=-1).tolist()
        return tokens

    def logits(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens in one pass; return the next token's scores after each, [tokens, vocabulary].

        Not normalized, in the model's dtype, on its device; an inference tensor of the caller's own.
        """
        if self._cache is None:
            raise EngineError("forward before start: there is no cache yet; call start first")
        if len(token_ids) == 0:
            raise EngineError("forward of no tokens; give at least one")
        capacity = self._cache_layers[0].capacity
        if self.length + len(token_ids) > capacity:
            # Checked before the pass: a layer that refused halfway would leave the layers unequal.
            raise EngineError(
                f"forward of {len(token_ids)} tokens onto {self.length} rows, but start allocated {capacity}"
                "; crop first, or start with more new tokens"
            )
        return self._step(token_ids, self._cache, logits_to_keep=0)

    def crop(self, tokens: int) -> None:
        """Drop the last `tokens` rows, never the prompt's."""
        if self._cache is None:
            raise EngineError("crop before start: there is no cache yet; call start first")
        generated = self.length - self._context_tokens
        if not 0 <= tokens <= generated:
            raise EngineError(f"crop({tokens}): the cache holds {generated} rows after the prompt's, which stay")
        self._cache.crop(-tokens)

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

    def _allocate(self, capacity: int) -> list[InPlaceLayer]:
        return [InPlaceLayer(shape, capacity, self._dtype, self._device) for shape in self._layers]

    def _allocate_sending(self, capacity: int, on_rows: RowsCallback) -> list[InPlaceLayer]:
        return [
            SendingLayer(shape, capacity, self._dtype, self._device, index=index, on_rows=on_rows)
            for index, shape in enumerate(self._layers)
        ]

    def _check_positions(self, tokens: int) -> None:
        limit = getattr(self._model.config, "max_position_embeddings", None)
        if limit is not None and tokens > limit:
            raise EngineError(
                f"{tokens} tokens asked of a model that was made for {limit}; shorten the context or the answer"
            )


def _to_wire(buffer: Tensor) -> Tensor:
    """[1, kv_heads, tokens, head_dim] -> contiguous bfloat16 [kv_heads, tokens, head_dim], always a copy."""
    return buffer[0].to(torch.bfloat16, copy=True).contiguous()


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
        if type(layer) is not DynamicLayer:
            raise UnsupportedModel(
                f"layer {index} of {name} keeps a {type(layer).__name__}; only full attention's plain cache "
                "can be streamed as yet: choose a model without sliding windows, state-space or shared layers"
            )
        if layer.keys is None or layer.values is None or layer.keys.shape != layer.values.shape:
            raise UnsupportedModel(
                f"layer {index} of {name} keeps K and V of unequal shapes; only equal ones can be streamed as yet"
            )
        shapes.append(LayerShape(layer.keys.shape[1], layer.keys.shape[3]))
    if not shapes:
        raise UnsupportedModel(f"{name} keeps no cache at all; choose a causal language model with attention")
    return tuple(shapes)
