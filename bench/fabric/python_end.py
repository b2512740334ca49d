"""An end of a transfer in Python, that speaks as `lynx_bench_fabric` does (bench/fabric/end.hpp)."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

_PR_SET_PDEATHSIG = 1


class End(Protocol):
    """The sending or the receiving end over some library."""

    def endpoint(self) -> str:
        """What the other end's connect() needs; one word."""

    def connect(self, endpoint: str) -> None:
        """Make the other end known."""

    def write(self, offset: int, chunk_bytes: int, total_bytes: int) -> None:
        """Write so many bytes in chunks; return once the other end has them."""


def serve(make: Callable[[bool, int], End]) -> None:
    """Obey the commands on the standard input, as `send|receive MEMORY_BYTES` of the command line says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle: it closes the standard input.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Whatever ends the driver ends its ends.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # The libraries print what they like.

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    sends = sys.argv[1] == "send"
    try:
        end = make(sends, int(sys.argv[2]))
        answer(endpoint=end.endpoint())
        for line in sys.stdin:
            word, *arguments = line.split()
            if word == "peer":
                if sends:
                    end.connect(arguments[0])
                answer(connected=True)
            elif not sends:
                answer(waiting=True)
                answer()  # Writes are one-sided: there is nothing to do, and the sender knows when they are done.
            elif word == "goodput":
                chunk_bytes, total_bytes = map(int, arguments)
                start = time.monotonic_ns()
                end.write(0, chunk_bytes, total_bytes)
                answer(start_ns=start, end_ns=time.monotonic_ns())
            elif word == "latency":
                size, count = map(int, arguments)
                start = time.monotonic_ns()
                for _ in range(count):
                    end.write(0, size, size)
                answer(delivered_ns=time.monotonic_ns() - start, count=count)
            else:
                raise ValueError(f"unknown command: {line.strip()}")
    except Exception as e:  # What libraries throw is theirs; the driver has to hear of it.
        answer(error=f"{type(e).__name__}: {e}")
    # Without their destructors, some of which wait for the other end, or crash without it.
    os._exit(0)
