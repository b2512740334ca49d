"""Encoding to 8 bit-planes in torch: what docs/wire-format.md says, as fast as torch's own operations go.

Only the rotation's additions come in another order than the format's, that of a matrix product, so that a code, scale
or zero is now and then off by one in its last place. Sources have to be finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

PLANES = 8
_CHUNK_VALUES = 1 << 18  # A chunk's tensors stay in a cache, and the cost of a call is small beside its work.
_LARGEST_PRODUCT = 32  # Above it a butterfly stage costs less than the wider matrix product.
_MAX_HALF = 65504.0
_ROW_MASKS = {4: 0x0F0F0F0F0F0F0F0F, 2: 0x3333333333333333, 1: 0x5555555555555555}


def hadamard(size: int) -> Tensor:
    """The matrix in natural order, +-1 as float32; `size` is a power of two."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


class TorchEncoder:
    """Encodes bf16 tensors [vectors, head_dim], head_dim a power of two from 8, on the threads torch has.

    Scratch memory is taken once. What is the fastest here was found by trying: vectors as columns, so that minimum and
    maximum run across rows; one matrix product for 32 coordinates at a time; planes by three stages of bit swaps
    between eight rows of codes, on words of eight codes.
    """

    def __init__(self, head_dim: int) -> None:
        bits = head_dim.bit_length() - 1
        self._head_dim = head_dim
        self._block = min(head_dim, _LARGEST_PRODUCT)
        self._matrix = hadamard(self._block) * 2.0 ** -(bits // 2)  # A power of two: exact wherever it stands.
        self._chunk_vectors = _CHUNK_VALUES // head_dim
        values = self._chunk_vectors * head_dim
        self._wide = torch.empty(values)
        self._rotated = torch.empty(values)
        self._codes = torch.empty(values, dtype=torch.uint8)
        self._swapped = torch.empty(values // 16, dtype=torch.int64)

    @torch.inference_mode()
    def encode(self, source: Tensor, scales: Tensor, zeros: Tensor, planes: Tensor) -> None:
        """Into `scales` and `zeros`, float16 [vectors], and `planes`, uint8 [8, vectors, head_dim / 8].

        The number of vectors is a multiple of 8.
        """
        for first in range(0, len(source), self._chunk_vectors):
            part = slice(first, first + self._chunk_vectors)
            self._encode_chunk(source[part], scales[part], zeros[part], planes[:, part])

    def _encode_chunk(self, source: Tensor, scales: Tensor, zeros: Tensor, planes: Tensor) -> None:
        vectors, head_dim = source.shape
        y = self._rotate(source)
        low, high = y.amin(0), y.amax(0)
        zeros.copy_(low.clamp(-_MAX_HALF, _MAX_HALF)).add_(0.0)
        scales.copy_(((high - low) / 255).clamp_(max=_MAX_HALF))
        inverse = scales.float().reciprocal_().masked_fill_(scales == 0, 0.0)
        y.sub_(zeros.float()).mul_(inverse).round_().clamp_(0, 255)
        codes = self._codes[: y.numel()].view(head_dim // 8, 8, vectors).copy_(y.view(head_dim // 8, 8, vectors))
        self._split(codes.view(torch.int64))
        planes.copy_(codes.permute(1, 2, 0).flip(0))  # Row i now holds bit i of the eight codes.

    def _rotate(self, source: Tensor) -> Tensor:
        """[head_dim, vectors], float32."""
        vectors, head_dim = source.shape
        wide = self._wide[: source.numel()].view(vectors, head_dim).copy_(source)
        rotated = self._rotated[: source.numel()].view(head_dim, vectors)
        for at in range(0, head_dim, self._block):
            block = slice(at, at + self._block)
            torch.mm(self._matrix, wide[:, block].t(), out=rotated[block])
        half, other = self._block, self._wide[: source.numel()].view(head_dim, vectors)
        while half < head_dim:
            pairs = rotated.view(-1, 2, half, vectors)
            results = other.view(-1, 2, half, vectors)
            torch.add(pairs[:, 0], pairs[:, 1], out=results[:, 0])
            torch.sub(pairs[:, 0], pairs[:, 1], out=results[:, 1])
            rotated, other, half = other, rotated, 2 * half
        return rotated

    def _split(self, words: Tensor) -> None:
        """Transposes 8 x 8 bits: rows of eight codes [..., 8, words] to bit-planes in their place."""
        for distance, mask in _ROW_MASKS.items():
            pairs = words.view(len(words), 4 // distance, 2, distance, -1)
            low, high = pairs[:, :, 0], pairs[:, :, 1]
            swapped = self._swapped[: low.numel()].view(low.shape)
            torch.bitwise_right_shift(low, distance, out=swapped)
            swapped.bitwise_xor_(high).bitwise_and_(mask)
            high.bitwise_xor_(swapped)
            low.bitwise_xor_(swapped.bitwise_left_shift_(distance))
