"""Cache layers of transformers over buffers that are allocated once and that a codec may rewrite in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from .base import EngineError, LayerShape, RowsCallback

LayerCallback = Callable[[int], None]
"""Called with a layer's index before its attention reads the cache."""


class RowBuffers:
    """One layer's K and V, each [1, kv_heads, capacity, head_dim]. Whoever holds them may rewrite rows."""

    def __init__(self, shape: LayerShape, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        # Allocated outside inference mode: an inference tensor could not be written from plain code later.
        size = (1, shape.kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
        self.capacity = capacity


class InPlaceLayer(DynamicLayer):
    """What one pass sees of a layer: the buffers' first `length` rows, behind which it writes its own.

    `update` writes the new rows and returns views: a step allocates and copies no other. Two passes may be under way
    over the same buffers, one within the other, each with layers of its own.
    """

    def __init__(self, index: int, buffers: RowBuffers, length: int, before_layer: LayerCallback | None = None) -> None:
        super().__init__()
        self.index = index
        self.buffers = buffers
        self.device = buffers.keys.device
        self.dtype = buffers.keys.dtype
        self.is_initialized = True
        self._before_layer = before_layer
        self._resize(length)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append rows [1, kv_heads, n, head_dim]; return views of all rows."""
        if self._before_layer is not None:
            # Whoever is called may leave this pass where it is and go on with other work on the thread: that is not to
            # run in the mode of this pass.
            with torch.inference_mode(False):
                self._before_layer(self.index)
        begin, end = self.length, self.length + key_states.shape[-2]
        if end > self.buffers.capacity:
            raise EngineError(f"{end} rows asked of a cache layer of {self.buffers.capacity}")
        self.buffers.keys[:, :, begin:end].copy_(key_states)
        self.buffers.values[:, :, begin:end].copy_(value_states)
        self._resize(end)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """The number of rows."""
        return self.length

    def get_max_length(self) -> int:
        """The number of rows that the buffers hold."""
        return self.buffers.capacity

    def _resize(self, length: int) -> None:
        self.length = length
        self.keys = self.buffers.keys[:, :, :length]
        self.values = self.buffers.values[:, :, :length]


class SendingLayer(InPlaceLayer):
    """One layer's cache during prefill that hands over its new rows before attention reads them."""

    def __init__(self, index: int, buffers: RowBuffers, on_rows: RowsCallback) -> None:
        super().__init__(index, buffers, 0)
        self._on_rows = on_rows

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append rows, then hand them over; see `InPlaceLayer.update`."""
        begin = self.length
        rows = super().update(key_states, value_states, *args, **kwargs)
        # Rows of prefill are never written again: of a bf16 model these are views.
        keys, values = (buffer[0, :, begin:].to(torch.bfloat16) for buffer in rows)
        self._on_rows(self.index, begin, keys, values)
        return rows
