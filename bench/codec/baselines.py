"""What stands beside the codec: torch with the same arithmetic, blosc2's bitshuffle, zipnn. One thread each.

Each is measured as the codec's kernels are: in turns with memcpy and with what it is compared with, so that all see the
same state of the machine.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

import lynx

from . import cache
from .cache import ExactCoding
from .torch_compiled import CompiledEncoder
from .torch_reference import PLANES, TorchEncoder

_BLOCK_BYTES = 256 << 10  # The fastest for bitshuffle, which works block by block.


@dataclass(frozen=True, slots=True)
class Baseline:
    """Medians. `source_bytes` are those of the bf16 tensor; memcpy copies as many.

    `lynx_is_faster` is how many times faster the fastest codec does the same, `bits_per_value` what remains of 16;
    None where that was not measured.
    """

    name: str
    head_dim: int | None
    source_bytes: int
    seconds: float
    of_memcpy: float
    lynx_is_faster: float | None = None
    bits_per_value: float | None = None

    @property
    def bytes_per_second(self) -> float:
        """Of the source."""
        return self.source_bytes / self.seconds


def in_turns(repetitions: int, *works: Callable[[], object]) -> list[tuple[float, ...]]:
    """The seconds that each takes, once a repetition, in turns; a first round is not counted."""
    rounds = []
    for _ in range(repetitions + 1):
        times = []
        for work in works:
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        rounds.append(tuple(times))
    return rounds[1:]


def _copying(target: Tensor, source: Tensor) -> Callable[[], object]:
    """The C library's copy of all bytes, what the program's memcpy is, too."""
    bytes_ = source.numel() * source.element_size()
    return lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), bytes_)


def random_source(vectors: int, head_dim: int) -> Tensor:
    """Normal values, bfloat16 [vectors, head_dim], the same each time."""
    tile = torch.randn(min(vectors, 1 << 14), head_dim, generator=torch.Generator().manual_seed(1)).bfloat16()
    return tile.repeat(-(-vectors // len(tile)), 1)[:vectors].contiguous()


def encode_by_torch(codec: lynx.Codec, source_bytes: int, head_dim: int, repetitions: int, compiled: bool) -> Baseline:
    """Torch's encoding beside that of `codec`, of a bf16 tensor. `compiled`: by torch.compile."""
    vectors = source_bytes // (2 * head_dim)
    source, copy = random_source(vectors, head_dim), torch.zeros(vectors, head_dim, dtype=torch.bfloat16)
    layout = lynx.PlaneLayout(lynx.TensorSpec(1, vectors, head_dim))
    coded = torch.zeros(layout.bytes, dtype=torch.uint8)
    scales, zeros = torch.zeros(2, vectors, dtype=torch.float16)
    planes = torch.zeros(PLANES, vectors, head_dim // 8, dtype=torch.uint8)
    encoder = CompiledEncoder(head_dim) if compiled else TorchEncoder(head_dim)
    rounds = in_turns(
        repetitions,
        _copying(copy, source),
        lambda: encoder.encode(source, scales, zeros, planes),
        lambda: codec.encode(source[None], layout, coded),
    )
    return Baseline(
        "torch.compile, encode" if compiled else "torch, encode",
        head_dim,
        source_bytes,
        median(by_torch for _, by_torch, _ in rounds),
        median(memcpy / by_torch for memcpy, by_torch, _ in rounds),
        lynx_is_faster=median(by_torch / ours for _, by_torch, ours in rounds),
    )


def split_by_blosc2(source_bytes: int, repetitions: int) -> Baseline:
    """blosc2's bitshuffle of 8-bit codes to planes, the last step of encoding alone: block by block, not tensor-wide.

    Counted in bytes of the bf16 tensor that has as many values. Raises `ImportError`.
    """
    import blosc2

    library = ctypes.CDLL(str(Path(blosc2.__file__).parent / "lib/libblosc2.so"))
    bitshuffle = library.blosc2_bitshuffle
    bitshuffle.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    bitshuffle.restype = ctypes.c_int32
    codes = torch.randint(0, 256, (source_bytes // 2,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    planes = torch.zeros_like(codes)
    source, copy = torch.ones(2, source_bytes, dtype=torch.uint8)

    def split() -> None:
        for at in range(0, len(codes), _BLOCK_BYTES):
            if bitshuffle(1, _BLOCK_BYTES, codes.data_ptr() + at, planes.data_ptr() + at) != _BLOCK_BYTES:
                raise ValueError("blosc2_bitshuffle failed")

    rounds = in_turns(repetitions, _copying(copy, source), split)
    return Baseline(
        "blosc2, split alone",
        None,
        source_bytes,
        median(by_blosc2 for _, by_blosc2 in rounds),
        median(memcpy / by_blosc2 for memcpy, by_blosc2 in rounds),
    )


def lossless_by_zipnn(coding: ExactCoding, repetitions: int) -> Sequence[Baseline]:
    """zipnn's compression and decompression of a cache beside the codec's with the exact tier. Raises `ImportError`."""
    from zipnn import ZipNN

    zipnn = ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)
    source = cache.as_bytes(coding.tensors)
    plain = source.numpy().tobytes()
    packed = bytes(zipnn.compress(bytearray(plain)))
    if bytes(zipnn.decompress(packed)) != plain:
        raise ValueError("zipnn did not give back what it was given")
    copy = torch.zeros_like(source)
    rounds = in_turns(
        repetitions,
        _copying(copy, source),
        lambda: zipnn.compress(plain),
        lambda: zipnn.decompress(packed),
        coding.encode,
        coding.decode,
    )
    bits = 16 * len(packed) / len(plain)
    return [
        Baseline(
            f"zipnn, {name}",
            None,
            len(plain),
            median(times[which] for times in rounds),
            median(times[0] / times[which] for times in rounds),
            lynx_is_faster=median(times[which] / times[which + 2] for times in rounds),
            bits_per_value=bits,
        )
        for which, name in ((1, "encode"), (2, "decode"))
    ]
