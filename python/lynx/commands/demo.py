"""`lynx demo`: a prefill and a decode process on this machine, and what they do, side by side."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import lynx
from lynx import models
from lynx.commands.events import Message, Sink
from lynx.trace import merge

STOP_TIMEOUT_S = 10.0
START_TIMEOUT_S = 900.0  # Loading a model for the first time and a long prefill, on a slow machine.


class DemoError(RuntimeError):
    """One of the two processes ended with an error, which the message repeats."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The command's arguments; each as its own process takes it."""

    prefill: Sequence[str]
    decode: Sequence[str]
    model: str
    trace: Path | None = None  # of both


def run(options: DemoOptions, emit: Sink) -> dict[str, Any]:
    """Run both processes to their end; the decode process's result. Ends both on any error, Ctrl-C included."""
    models.resolve(options.model)
    if options.trace is None:
        return _run(options.prefill, options.decode, emit)
    with tempfile.TemporaryDirectory(prefix="lynx-demo-") as folder:
        traces = [Path(folder, "prefill.json"), Path(folder, "decode.json")]
        try:
            prefill, decode = (
                [*arguments, "--trace", str(trace)]
                for arguments, trace in zip((options.prefill, options.decode), traces, strict=True)
            )
            return _run(prefill, decode, emit)
        finally:
            merge(options.trace, traces)


def _run(prefill: Sequence[str], decode: Sequence[str], emit: Sink) -> dict[str, Any]:
    events: queue.Queue[tuple[str, Message | None]] = queue.Queue()
    children: list[_Child] = []
    try:
        children.append(_Child("prefill", ["--listen", "127.0.0.1:0", "--once", *prefill], events))
        address = _wait_for(events, "prefill", "listening", emit)["address"]
        children.append(_Child("decode", ["--connect", address, *decode], events))
        result: dict[str, Any] = _wait_for(events, "decode", "result", emit)["result"]
        return result
    finally:
        for child in reversed(children):
            child.stop()


def _wait_for(events: queue.Queue[tuple[str, Message | None]], name: str, kind: str, emit: Sink) -> Message:
    """Pass on events until `name` tells one of `kind`."""
    while True:
        try:
            source, event = events.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            raise lynx.Timeout(f"neither process said anything for {START_TIMEOUT_S:g} s") from None
        if event is None:
            raise DemoError(f"the {source} process ended before it was done; what it had to say stands above")
        if event["event"] == "error":
            raise DemoError(f"{source}: {event['type']}: {event['text']}")
        if source == "prefill" or event["event"] not in ("prefilled", "listening"):
            emit(event)
        if source == name and event["event"] == kind:
            return event


def _parse(line: str) -> Message:
    """An event; what else a process prints, a policy of the user's say, is passed on as it is."""
    try:
        event = json.loads(line)
        if isinstance(event, dict) and "event" in event:
            return event
    except ValueError:
        pass
    return {"event": "status", "text": line.rstrip()}


class _Child:
    """A `lynx` process that tells its events. It ends when this process does, however that ends: its input closes."""

    def __init__(self, command: str, arguments: Sequence[str], events: queue.Queue[tuple[str, Message | None]]) -> None:
        self._command = command
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lynx", command, "--events", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the others in order.
        )
        stdout = self._process.stdout
        assert stdout is not None
        self._reader = threading.Thread(target=self._read, args=(stdout, events), daemon=True)
        self._reader.start()

    def _read(self, stdout: IO[str], events: queue.Queue[tuple[str, Message | None]]) -> None:
        try:
            for line in stdout:
                events.put((self._command, _parse(line)))
        finally:
            events.put((self._command, None))

    def stop(self) -> None:
        """End the process: by itself if it is about to, else by interrupt, at the last by kill."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._reader.join()
