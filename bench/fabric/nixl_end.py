"""`python -m bench.fabric.nixl_end send|receive MEMORY_BYTES`: an end that is NIXL over UCX."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np

from . import python_end

_POLL_S = 20e-6


class NixlEnd:
    """An agent with one registered array."""

    def __init__(self, sends: bool, memory_bytes: int) -> None:
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self._name = f"lynx-bench-{os.getpid()}"
        # A thread that polls is what the receiving side needs; the sender polls in write(), which is faster alone.
        self._agent: Any = nixl_agent(self._name, nixl_agent_config(enable_prog_thread=not sends, backends=["UCX"]))
        self._array = np.full(memory_bytes, 1, np.uint8)
        self._base = int(self._array.ctypes.data)
        self._agent.register_memory([(self._base, memory_bytes, 0, "")], "DRAM")
        self._peer: Any = None
        self._peer_base = 0
        self._handles: dict[tuple[int, int, int], Any] = {}

    def endpoint(self) -> str:
        fields = {"metadata": self._agent.get_agent_metadata().hex(), "base": self._base}
        return json.dumps(fields).encode().hex()

    def connect(self, endpoint: str) -> None:
        fields = json.loads(bytes.fromhex(endpoint))
        self._peer = self._agent.add_remote_agent(bytes.fromhex(fields["metadata"]))
        self._peer_base = fields["base"]

    def write(self, offset: int, chunk_bytes: int, total_bytes: int) -> None:
        handle = self._handle(offset, chunk_bytes, total_bytes)
        state = self._agent.transfer(handle)
        while state == "PROC":
            if total_bytes > chunk_bytes:
                time.sleep(_POLL_S)  # Its threads need the cores; a single write is waited for by polling.
            state = self._agent.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"NIXL's transfer ended as {state}")

    def _handle(self, offset: int, chunk_bytes: int, total_bytes: int) -> Any:
        key = (offset, chunk_bytes, total_bytes)
        if key not in self._handles:
            places = range(offset, offset + total_bytes, chunk_bytes)
            here = self._agent.get_xfer_descs([(self._base + at, chunk_bytes, 0) for at in places], "DRAM")
            there = self._agent.get_xfer_descs([(self._peer_base + at, chunk_bytes, 0) for at in places], "DRAM")
            self._handles[key] = self._agent.initialize_xfer("WRITE", here, there, self._peer)
        return self._handles[key]


if __name__ == "__main__":
    python_end.serve(NixlEnd)
