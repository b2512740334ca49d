"""A model of transformers over a cache that is given to it, whatever kinds of layers it has."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from .coding import Layers

CHUNK_TOKENS = 256  # Prefill takes as long as in one pass, and its scores fit memory.


class CachedModel:
    """Prefill once, then score tokens after any version of the cache.

    Unlike the engine of the package it also runs models with sliding windows; their layers hold the last rows of
    the context alone, and are coded as they are. `model` is in evaluation mode, float32.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        names = inspect.signature(model.forward).parameters  # transformers renamed the argument.
        self._cache_argument = "cache" if "cache" in names else "past_key_values"

    def prefill(self, tokens: Sequence[int]) -> Layers:
        """The cache of `tokens`, rounded to bfloat16, contiguous."""
        cache = DynamicCache(config=self._model.config)
        for begin in range(0, len(tokens), CHUNK_TOKENS):
            self._step(cache, tokens[begin : begin + CHUNK_TOKENS], logits_to_keep=1)
        return [(_to_wire(layer.keys), _to_wire(layer.values)) for layer in cache.layers]

    def log_probabilities(self, layers: Layers, context: int, tokens: Sequence[int]) -> Tensor:
        """Of the next token after each of `tokens`, which follow a context of that many, [tokens, vocabulary].

        In double precision, so that a small KL is not lost in the sum over the vocabulary.
        """
        cache = DynamicCache(config=self._model.config)
        for layer, (keys, values) in zip(cache.layers, layers, strict=True):
            rows = keys.float().unsqueeze(0), values.float().unsqueeze(0)
            layer.lazy_initialization(*rows)
            layer.keys, layer.values = rows
            if hasattr(layer, "cumulative_length"):  # A sliding layer knows how long the context was.
                layer.cumulative_length = context
        return self._step(cache, tokens, logits_to_keep=0).double().log_softmax(dim=-1)

    def _step(self, cache: DynamicCache, tokens: Sequence[int], logits_to_keep: int) -> Tensor:
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([list(tokens)]),
                use_cache=True,
                logits_to_keep=logits_to_keep,
                **{self._cache_argument: cache},
            )
        logits: Tensor = output.logits[0]
        return logits

    def check_positions(self, tokens: int) -> None:
        """Raise `ValueError` if the model was not made for that many tokens, cached and new ones together."""
        limit = getattr(self._model.config, "max_position_embeddings", None)
        if limit is not None and tokens > limit:
            raise ValueError(f"{tokens} tokens asked of a model that was made for {limit}; shorten the context")


def _to_wire(rows: Tensor) -> Tensor:
    return rows[0].to(torch.bfloat16, copy=True).contiguous()
