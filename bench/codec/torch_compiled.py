"""The same encoding written for torch.compile, which makes C++ of it: how far torch gets with a compiler's help."""

from __future__ import annotations

import torch
from torch import Tensor

from .torch_reference import PLANES, hadamard

_CHUNK_VALUES = 1 << 17
_MAX_HALF = 65504.0
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def _codes(source: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scales, zeros and codes; the loops around the matrix product become one."""
    y = source.float() @ matrix
    low, high = y.amin(1, keepdim=True), y.amax(1, keepdim=True)
    zero = low.clamp(-_MAX_HALF, _MAX_HALF).half() + 0.0
    scale = ((high - low) / 255).clamp(max=_MAX_HALF).half()
    inverse = torch.where(scale == 0, 0.0, 1 / scale.float())
    codes = ((y - zero.float()) * inverse).round().clamp(0, 255).to(torch.uint8)
    return scale[:, 0], zero[:, 0], codes


def _split(codes: Tensor) -> Tensor:
    """Transposes 8 x 8 bits in each word of eight codes; [8, words]."""
    words = codes.view(-1).view(torch.int64)
    for shift, mask in _SWAPS:
        swapped = ((words >> shift) ^ words) & mask
        words = words ^ swapped ^ (swapped << shift)
    return torch.stack([(words >> (8 * (PLANES - 1 - plane))).to(torch.uint8) for plane in range(PLANES)])


class CompiledEncoder:
    """As `TorchEncoder`, but the number of vectors is a multiple of 2^17 / head_dim, the one shape it compiles.

    The first call compiles, which takes seconds and needs a C++ compiler.
    """

    def __init__(self, head_dim: int) -> None:
        self._matrix = hadamard(head_dim) * 2.0 ** -((head_dim.bit_length() - 1) // 2)
        self._chunk_vectors = _CHUNK_VALUES // head_dim
        self._codes = torch.compile(_codes, dynamic=False)
        self._split = torch.compile(_split, dynamic=False)

    @torch.inference_mode()
    def encode(self, source: Tensor, scales: Tensor, zeros: Tensor, planes: Tensor) -> None:
        """As `TorchEncoder.encode`."""
        if len(source) % self._chunk_vectors:
            raise ValueError(f"{len(source)} vectors are not a multiple of {self._chunk_vectors}")
        for first in range(0, len(source), self._chunk_vectors):
            part = slice(first, first + self._chunk_vectors)
            scales[part], zeros[part], codes = self._codes(source[part], self._matrix)
            planes[:, part] = self._split(codes).view(PLANES, self._chunk_vectors, -1)
