"""When what moved, as a file that https://ui.perfetto.dev opens: Chrome's trace events, in JSON.

A track is a stream, one tier of one transfer, with an event for each tensor's part that moved; the decode loop has a
track for each request. Times are microseconds of the machine's monotonic clock, so that traces of processes of one
machine fit together (`merge`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lynx._core import PartTimes, PlaneReceiver, PlaneSender, TensorRole
from lynx.runtime import Committed, Done, Drafted, Event, RolledBack, Started

TIERS = ("anchor", "residual", "exact")
_HEAD = '{"displayTimeUnit": "ms", "traceEvents": [\n'
_TAIL = "\n]}\n"

TraceEvent = dict[str, Any]


class Trace:
    """Writes the file as things happen; it is whole after every call, so an error or Ctrl-C takes nothing away.

    Calls may come from any thread. A context manager that closes the file.
    """

    def __init__(self, path: Path, process: str) -> None:
        """Overwrite `path`; `process` names this process in the trace. Raises `OSError`."""
        self._file = path.open("w+b")
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._tracks = 0
        self._file.write(_HEAD.encode())
        self._end = self._file.tell()
        self._separator = b""
        self.write([self._metadata("process_name", 0, process)])

    def add(self, transfer: PlaneSender | PlaneReceiver) -> None:
        """A transfer as it stands, at its end as a rule: a track for each tier of which anything has moved."""
        request = transfer.manifest.request_id
        done = "sent" if isinstance(transfer, PlaneSender) else "received"
        parts = transfer.timeline()
        first = (0, 1, transfer.manifest.exact_part, transfer.manifest.exact_part + 1)  # part of each tier, and the end
        for tier, name in enumerate(TIERS):
            stream = sorted(
                (p for p in parts if first[tier] <= p.part < first[tier + 1]), key=lambda p: (p.first_ns, p.last_ns)
            )
            # Events of one track may not overlap. Where several tensors were on their way at once they lie below each
            # other, in as many rows of the same name as it takes.
            rows: list[list[PartTimes]] = []
            for part in stream:
                row = next((row for row in rows if row[-1].last_ns <= part.first_ns), None)
                if row is None:
                    rows.append([part])
                else:
                    row.append(part)
            for row in rows:
                track = self.track(f"request {request} {name} {done}")
                self.write(self._part(part, track, transfer) for part in row)

    def _part(self, part: PartTimes, track: int, transfer: PlaneSender | PlaneReceiver) -> TraceEvent:
        tensor = transfer.manifest.tensors[part.tensor]
        args = {
            "bytes": part.bytes,
            "chunks": part.chunks,
            "resent": part.resent,
            "complete": part.complete,
            "first_token": tensor.first_token,
            "first_head": tensor.first_head,
        }
        name = f"{'K' if tensor.role == TensorRole.KEY else 'V'} {tensor.layer}"
        return self.slice(name, TIERS[part.part], track, part.first_ns, part.last_ns, args)

    def track(self, name: str) -> int:
        """A new track, by the number that its events bear."""
        with self._lock:
            self._tracks += 1
            track = self._tracks
        self.write([self._metadata("thread_name", track, name)])
        return track

    def slice(
        self, name: str, category: str, track: int, begin_ns: int, end_ns: int, args: dict[str, Any]
    ) -> TraceEvent:
        """An event from `begin_ns` to `end_ns`, times as `time.monotonic_ns` has them."""
        event = self.instant(name, category, track, begin_ns, args)
        del event["s"]
        return event | {"ph": "X", "dur": (end_ns - begin_ns) / 1000}

    def instant(self, name: str, category: str, track: int, at_ns: int, args: dict[str, Any]) -> TraceEvent:
        """An event of one moment."""
        common = {"name": name, "cat": category, "pid": self._pid, "tid": track, "args": args}
        return {"ph": "i", "s": "t", "ts": at_ns / 1000, **common}

    def _metadata(self, what: str, track: int, name: str) -> TraceEvent:
        return {"ph": "M", "name": what, "ts": 0, "pid": self._pid, "tid": track, "args": {"name": name}}

    def write(self, events: Iterable[TraceEvent]) -> None:
        """Append events to the file."""
        text = b",\n".join(json.dumps(event).encode() for event in events)
        if not text:
            return
        with self._lock:
            # One write over the end of the file, which then ends anew.
            text = self._separator + text
            self._file.seek(self._end)
            self._file.write(text + _TAIL.encode())
            self._file.flush()
            self._end += len(text)
            self._separator = b",\n"

    def close(self) -> None:
        """Nothing can be added any more."""
        self._file.close()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class LoopTrace:
    """The decode loop of one request, on a track of its own: what it decided, and what came of it."""

    def __init__(self, trace: Trace, name: str) -> None:
        self._trace = trace
        self._track = trace.track(name)
        self._decided_ns = time.monotonic_ns()

    def watch(self, policy: Any) -> Any:
        """The same policy, whose decisions begin the events `drafted` and `verify`. For one loop."""
        return _Watched(policy, self)

    def decided(self) -> None:
        """A step begins now."""
        self._decided_ns = time.monotonic_ns()

    def on_event(self, event: Event) -> None:
        """Note what the loop has yielded, at once."""
        if isinstance(event, Drafted):
            self._step("drafted", {"token": event.token})
        elif isinstance(event, RolledBack):
            self._instant("rolled back", {"count": event.count})
        elif isinstance(event, Committed):
            self._step("verify", {})
            self._instant("committed", {"tokens": list(event.tokens), "accepted": event.accepted})
        elif isinstance(event, Started):
            self._instant("first token", {"token": event.first_token})
        elif isinstance(event, Done):
            self._instant("done", {"verified": event.verified})

    def _step(self, name: str, args: dict[str, Any]) -> None:
        now = time.monotonic_ns()
        self._trace.write([self._trace.slice(name, "decode", self._track, self._decided_ns, now, args)])
        self._decided_ns = now

    def _instant(self, name: str, args: dict[str, Any]) -> None:
        self._trace.write([self._trace.instant(name, "decode", self._track, time.monotonic_ns(), args)])


class _Watched:
    def __init__(self, policy: Any, loop: LoopTrace) -> None:
        self._policy = policy
        self._loop = loop

    def decide(self, snapshot: Any) -> Any:
        self._loop.decided()
        return self._policy.decide(snapshot)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def __repr__(self) -> str:
        return repr(self._policy)


def merge(into: Path, traces: Sequence[Path]) -> None:
    """One trace of several processes of this machine. What is not there, or is no trace, is left out."""
    events = [event for path in traces for event in _events(path)]
    into.write_text(_HEAD + ",\n".join(json.dumps(event) for event in events) + _TAIL, encoding="utf-8")


def _events(path: Path) -> list[TraceEvent]:
    try:
        events: list[TraceEvent] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    except (OSError, ValueError):
        return []
    return events
