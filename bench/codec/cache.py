"""Real caches, what a model holds after a long text, and their lossless coding."""

from __future__ import annotations

import torch
from torch import Tensor

import lynx
from lynx.transfer import CacheCoding

CONTEXT_TOKENS = 2048


def of_model(name: str) -> list[Tensor]:
    """K and V of every layer after a prefill, bfloat16 [kv_heads, tokens, head_dim], contiguous.

    A layer that slides over its last tokens holds fewer than 2,048. Raises what `lynx.models.load` raises where the
    model is not there.
    """
    from bench.quality.cached_model import CachedModel
    from bench.quality.texts import windows
    from lynx import models

    loaded = models.load(name)
    [window] = windows(loaded.tokenizer, CONTEXT_TOKENS, 0, 1)
    return [tensor for pair in CachedModel(loaded.model).prefill(window) for tensor in pair]


def as_bytes(tensors: list[Tensor]) -> Tensor:
    """All of them in a row, uint8."""
    return torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])


class ExactCoding:
    """A cache coded as it is sent by default, with the exact tier; `tensors` are K and V of each layer in turns."""

    def __init__(self, codec: lynx.Codec, tensors: list[Tensor]) -> None:
        how = CacheCoding()
        self.tensors = tensors
        self._codec = codec
        self._layouts = [
            lynx.PlaneLayout(
                lynx.TensorSpec(
                    *tensor.shape,
                    anchor_bits=how.anchor_bits(index // 2, len(tensors) // 2)[index % 2],
                    sink_tokens=how.sink_tokens,
                    exact=True,
                )
            )
            for index, tensor in enumerate(tensors)
        ]
        self._coded = [torch.zeros(layout.bytes, dtype=torch.uint8) for layout in self._layouts]
        self._decoded = [torch.zeros_like(tensor) for tensor in tensors]
        self._coded_bytes = 0

    def encode(self) -> None:
        """All tiers of all tensors."""
        self._coded_bytes = 0
        for tensor, layout, coded in zip(self.tensors, self._layouts, self._coded, strict=True):
            self._codec.encode(tensor, layout, coded)
            self._coded_bytes += layout.exact_payload.offset + self._codec.encode_exact(tensor, layout, coded)

    def decode(self) -> None:
        """What `encode` has coded, back to its bits."""
        for layout, coded, decoded in zip(self._layouts, self._coded, self._decoded, strict=True):
            self._codec.decode_exact(layout, coded, decoded)

    def coded(self) -> Tensor:
        """All that `encode` has written, in a row."""
        return torch.cat(self._coded)

    def bits_per_value(self) -> float:
        """Of all that has to be sent. Codes and decodes once; raises `ValueError` if a bit comes back wrong."""
        self.encode()
        self.decode()
        if not torch.equal(as_bytes(self._decoded), as_bytes(self.tensors)):
            raise ValueError("the exact tier did not give back the cache's bits")
        return 8 * self._coded_bytes / sum(tensor.numel() for tensor in self.tensors)
