"""`python -m bench.fabric.mooncake_end send|receive MEMORY_BYTES`: an end that is Mooncake's engine over tcp."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import python_end

_MAX_BATCH = 256
"""Writes handed over at once; it refuses a batch of thousands."""


class MooncakeEnd:
    """An engine with one registered array."""

    def __init__(self, sends: bool, memory_bytes: int) -> None:
        from mooncake.engine import TransferEngine

        self._engine: Any = TransferEngine()
        if self._engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("Mooncake's engine did not start")
        self._array = np.full(memory_bytes, 1, np.uint8)
        self._base = int(self._array.ctypes.data)
        if self._engine.register_memory(self._base, memory_bytes) != 0:
            raise RuntimeError("Mooncake did not register the memory")
        self._peer = ""
        self._peer_base = 0

    def endpoint(self) -> str:
        return f"127.0.0.1:{self._engine.get_rpc_port()}/{self._base}"

    def connect(self, endpoint: str) -> None:
        self._peer, base = endpoint.split("/")
        self._peer_base = int(base)

    def write(self, offset: int, chunk_bytes: int, total_bytes: int) -> None:
        places = range(offset, offset + total_bytes, chunk_bytes)
        for first in range(0, len(places), _MAX_BATCH):
            batch = places[first : first + _MAX_BATCH]
            failed = self._engine.batch_transfer_sync_write(
                self._peer,
                [self._base + at for at in batch],
                [self._peer_base + at for at in batch],
                [chunk_bytes] * len(batch),
            )
            if failed:
                raise RuntimeError(f"Mooncake's transfer failed: {failed}")


if __name__ == "__main__":
    python_end.serve(MooncakeEnd)
