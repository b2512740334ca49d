"""The shape of a model's cache, from its files' metadata: no weights are loaded."""

from __future__ import annotations

import re
from typing import Any

from lynx import models

Shapes = tuple[tuple[int, int], ...]
"""(KV heads, head_dim) of each layer."""

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)", re.ASCII)


def parse_shape(text: str) -> Shapes:
    """From LAYERSxHEADSxDIM, 32x8x128 say: KV heads, not those of the queries. Raises `ValueError`."""
    match = _SHAPE.fullmatch(text.strip().lower())
    layers, heads, head_dim = (int(number) for number in match.groups()) if match else (0, 0, 0)
    if not layers or not heads or not head_dim or head_dim % 8 or max(layers, head_dim) > 1024 or heads > 65536:
        raise ValueError(
            f"shape {text!r} is not understood: write layers x KV heads x head_dim, for example 32x8x128; "
            "head_dim has to be a multiple of 8"
        )
    return ((heads, head_dim),) * layers


def shapes_of(name: str) -> tuple[str, Shapes]:
    """The model's own name and its shapes. Layers that slide over a window count in full.

    Raises `models.ModelNotFound`, or `models.ModelUnusable` if its metadata do not say.
    """
    source = models.resolve(name)
    try:
        return source.name, _of_gguf(source.path) if source.kind == "gguf" else _of_directory(source.path)
    except (KeyError, TypeError, AttributeError, OSError, IndexError, ValueError) as e:
        raise models.ModelUnusable(
            f"model {source.name}: {source.path} does not say what shape its cache has ({type(e).__name__}: {e}); "
            "give it with --shape LAYERSxHEADSxDIM"
        ) from e


def _of_gguf(path: Any) -> Shapes:
    from gguf import GGUFReader

    fields = GGUFReader(path).fields

    def value(key: str) -> Any:
        return fields[key].contents()

    architecture = value("general.architecture")
    layers, heads = value(f"{architecture}.block_count"), value(f"{architecture}.attention.head_count")
    key = f"{architecture}.attention.key_length"
    head_dim = value(key) if key in fields else value(f"{architecture}.embedding_length") // heads
    kv_heads = value(f"{architecture}.attention.head_count_kv")
    by_layer = kv_heads if isinstance(kv_heads, list) else [kv_heads] * layers
    return tuple((int(h), int(head_dim)) for h in by_layer)


def _of_directory(path: Any) -> Shapes:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path, local_files_only=True).get_text_config()
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return ((int(kv_heads), int(head_dim)),) * int(config.num_hidden_layers)
