"""Prefilled caches on the disk: prefill is what takes the longest, and its result does not change."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from torch import Tensor

MAX_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class StoredCache:
    """`layers` are (K, V) as `Prefilled` has them, `logits` the scores of the token after the prompt."""

    layers: list[tuple[Tensor, Tensor]]
    logits: Tensor


def read(path: Path) -> StoredCache:
    """What `CacheStore` has written, in memory of its own."""
    tensors = load_file(path)
    logits = tensors.pop("logits").clone()
    # Clones, so that no page is read from the disk while something is timed.
    layers = [(tensors[f"k{i}"].clone(), tensors[f"v{i}"].clone()) for i in range(len(tensors) // 2)]
    return StoredCache(layers, logits)


def model_digest(model: Any) -> str:
    """Of all weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


class CacheStore:
    """Files named by model and prompt. Those longest unused go when there are more than `max_bytes`."""

    def __init__(self, folder: Path, engine: Any, digest: str, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._engine = engine
        self._model = f"{digest} {torch.__version__}"
        self._max_bytes = max_bytes
        self.prefilled = 0

    def path_of(self, token_ids: Sequence[int]) -> Path:
        """Of the prompt's cache, which is made if it is not there."""
        name = hashlib.sha256(f"{self._model} {list(token_ids)}".encode()).hexdigest()[:32]
        path = self._folder / f"{name}.safetensors"
        if path.exists():
            os.utime(path)
            return path
        prefilled = self._engine.prefill(token_ids)
        self.prefilled += 1
        tensors = {"logits": prefilled.logits.clone()}
        for index, (keys, values) in enumerate(prefilled.layers):
            tensors |= {f"k{index}": keys, f"v{index}": values}
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        save_file(tensors, partial)
        partial.rename(path)
        self._make_room(path)
        return path

    def _make_room(self, newest: Path) -> None:
        """Other processes may be doing the same."""
        found = []
        for file in self._folder.glob("*.safetensors"):
            with contextlib.suppress(FileNotFoundError):
                found.append((file.stat().st_mtime, file.stat().st_size, file))
        size = sum(one[1] for one in found)
        for _, its_size, file in sorted(found):
            if size <= self._max_bytes or file == newest:
                break
            size -= its_size
            file.unlink(missing_ok=True)
