"""Starts the two ends of a transfer as processes, and speaks with them (bench/fabric/end.hpp)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

ANSWER_S = 150.0
"""The longest that an end may take for an answer; a little more than `kLongest` of end.hpp."""
_GRACE_S = 2.0


class EndError(ValueError):
    """An end has ended, or did not answer in time, or says what went wrong."""


class End:
    """One process. Always close() it."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._words = tempfile.TemporaryFile("w+")  # noqa: SIM115  Closed by close().
        self._left = b""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
            )
        except OSError:
            self._words.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, command: str) -> None:
        """Send one command."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail("is gone")

    def hear(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        out = self._process.stdout.fileno()
        while b"\n" not in self._left:
            ready, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._fail(f"has not answered for {timeout_s:g} s")
            more = os.read(out, 1 << 16)
            if not more:
                self._fail("is gone")
            self._left += more
        line, self._left = self._left.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EndError(f"{self.name}: {answer['error']}")
        return answer

    def pause(self, paused: bool) -> None:
        """Stop the process, or let it go on."""
        self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def dismiss(self) -> None:
        """Let the process end by itself: what it has opened it closes."""
        self.pause(False)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # What was not flushed has nowhere to go.
            self._process.stdin.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        try:
            self.dismiss()
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._words.close()

    def _fail(self, what: str) -> None:
        self._words.seek(0)
        last = next(reversed(self._words.read().strip().splitlines()), "no message")
        raise EndError(f"{self.name} {what}: {last}")


@dataclass(frozen=True, slots=True)
class Kind:
    """What two ends are made of: the command but for `send` or `receive`, which stands where `ROLE` does."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    pauses: bool = False
    """Whether it is stopped while others are measured, since its threads never rest."""

    def start(self, role: str, prefix: Sequence[str] = ()) -> End:
        """One end; `prefix` is what runs it somewhere else."""
        command = [*prefix, *(role if word == "ROLE" else word for word in self.command)]
        return End(f"{self.name} ({role})", command, dict(self.environment))


def native(kind: str, program: Path, provider: str, memory_bytes: int, host: str, *options: str) -> Kind:
    """`kind` is "lynx" or "bare"."""
    command = (str(program.resolve()), kind, "ROLE", provider, host, str(memory_bytes), *options)
    return Kind(" ".join((kind, provider, *options)), command)


def python(module: str, memory_bytes: int, **environment: str) -> Kind:
    """An end of this package."""
    command = (sys.executable, "-m", f"bench.fabric.{module}_end", "ROLE", str(memory_bytes))
    return Kind(module, command, tuple(environment.items()), pauses=True)


class Pair:
    """A sender and a receiver, connected. A context manager."""

    def __init__(self, receiver: End, sender: End, pauses: bool = False) -> None:
        self.receiver, self.sender, self._pauses = receiver, sender, pauses

    @classmethod
    def of(cls, kind: Kind) -> Pair:
        """Both ends on this machine as it is."""
        receiver = kind.start("receive")
        try:
            sender = kind.start("send")
        except BaseException:
            receiver.close()
            raise
        return cls.connected(receiver, sender, kind.pauses)

    @classmethod
    def connected(cls, receiver: End, sender: End, pauses: bool = False) -> Pair:
        """Of two ends that have just been started; closed if that fails."""
        pair = cls(receiver, sender, pauses)
        try:
            hellos = [end.hear() for end in (receiver, sender)]
            for end, hello in zip((receiver, sender), reversed(hellos), strict=True):
                end.tell(f"peer {hello['endpoint']}")
            for end in (receiver, sender):
                end.hear()
            pair._pause(True)
        except BaseException:
            pair.close()
            raise
        return pair

    def run(self, command: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The receiver's and the sender's answer to a command that both get; the receiver first."""
        self._pause(False)
        self.receiver.tell(command)
        self.receiver.hear()  # It waits.
        self.sender.tell(command)
        sent = self.sender.hear()
        received = self.receiver.hear()
        self._pause(True)
        return received, sent

    def _pause(self, paused: bool) -> None:
        if self._pauses:
            for end in (self.receiver, self.sender):
                end.pause(paused)

    def goodput(self, chunk_bytes: int, total_bytes: int) -> float:
        """Payload bytes per second, from the first post to the last arrival."""
        received, sent = self.run(f"goodput {chunk_bytes} {total_bytes}")
        end_ns = received.get("end_ns") or sent["end_ns"]
        seconds: float = (end_ns - sent["start_ns"]) / 1e9
        return total_bytes / seconds

    def close(self) -> None:
        """End both processes."""
        try:
            self.receiver.dismiss()
            self.sender.close()
        finally:
            self.receiver.close()

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove_shm_files() -> None:
    """Remove what the ends that were killed have left in /dev/shm, if no process that made it lives."""
    for file in Path("/dev/shm").glob("lynxbench-*"):
        made_by = re.match(r"lynxbench-(\d+)\b", file.name)
        if made_by and not Path(f"/proc/{made_by[1]}").exists():
            file.unlink(missing_ok=True)
