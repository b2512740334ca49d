"""A real cache: what SmolLM2 holds after a long text."""

from __future__ import annotations

import torch
from torch import Tensor

CONTEXT_TOKENS = 2048


def smollm2() -> list[Tensor]:
    """K and V of every layer after a prefill, bfloat16 [kv_heads, 2048, 64], contiguous.

    Raises what `lynx.models.load` raises where the model is not there.
    """
    from lynx import models, prompts
    from lynx.engines.transformers import TransformersEngine

    loaded = models.load("smollm2")
    [window] = prompts.texts(loaded.tokenizer, CONTEXT_TOKENS, 0, 1)
    layers = TransformersEngine(loaded.model).prefill(window).layers
    return [tensor.contiguous() for pair in layers for tensor in pair]


def as_bytes(tensors: list[Tensor]) -> Tensor:
    """All of them in a row, uint8."""
    return torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])
