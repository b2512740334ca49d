"""What a running command tells: dictionaries, one an event, which a `Sink` shows or passes on.

{"event": "listening", "address": str}
{"event": "status", "text": str}                                     one line on what is being done
{"event": "progress", "text": str, "done": int, "total": int}
{"event": "prefilled", "model", "context_tokens", "prefill_s", "live", "question"}   prefill_s: null if live
{"event": "mode", "mode": str, "about": str}                         a transfer begins
{"event": "arrived", "anchor": float, "residual": float}             fractions
{"event": "text", "committed": str, "drafted": str}                  all of it so far
{"event": "rolled_back", "count": int}
{"event": "measured", "mode": str, "measured": {...}}                the transfer has ended
{"event": "result", "result": {...}}                                 the whole JSON
{"event": "error", "type": str, "text": str}
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, Protocol

Message = dict[str, Any]


class Sink(Protocol):
    """Takes events, in order, on one thread."""

    def __call__(self, event: Message, /) -> None:
        """Show one event, or pass it on."""
        ...


class JsonLines:
    """Writes each event as a line of JSON to standard output, for a parent process to read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, event: Message) -> None:
        """Write one line and flush it."""
        with self._lock:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
