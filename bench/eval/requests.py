"""One request from end to end: a process that sends, an engine here that decodes."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lynx
from bench.fabric import link
from lynx.engines.transformers import TransformersEngine
from lynx.measure import Measured, Stopwatch
from lynx.modes import coding_to_json
from lynx.planning import coding_of
from lynx.policies import choose
from lynx.runtime import Done, Drafted, Event, OnLoss, Started, decode
from lynx.transfer import reason_of

from . import kivi
from .calibrate import Pace
from .modes import Mode
from .store import StoredCache, read

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
OFFER_S = 30.0
LIMIT_S = 600.0
MTU = 1500
_CLONE_NEWNET = 0x40000000


class SenderError(ValueError):
    """The sending process did not start."""


class Sender:
    """The process. Always close() it."""

    def __init__(self, provider: str = "auto", host: str = "127.0.0.1", prefix: Sequence[str] = ()) -> None:
        """`prefix` is what runs it somewhere else."""
        self.host = host
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "bench.eval.sender", provider, host],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        try:
            self.port = self._port()
        except BaseException:
            self.close()
            raise

    def _port(self) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise SenderError(f"the sending process did not start within {START_S:g} s, or said why on standard error")
        port: int = json.loads(line)["port"]
        return port

    def kill(self) -> None:
        """As a machine dies: without a word."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it, whatever it does."""
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request is, apart from its mode. `bytes_per_second` 0: as fast as it goes."""

    cache: Path
    prompt: Sequence[int]
    tokens: int
    bytes_per_second: int = 0
    sampling: lynx.Sampling = field(default_factory=lynx.Sampling)
    end_tokens: Sequence[int] = ()
    on_loss: OnLoss = OnLoss.RAISE
    timeout_s: float = LIMIT_S
    told: int = 0  # The link's rate, where the link keeps it and not the sender.

    @property
    def rate(self) -> int:
        """Bytes a second, whoever keeps them; 0: unknown."""
        return self.told or self.bytes_per_second


@dataclass(slots=True)
class Answer:
    """What came of it. `choice` says what the policy has chosen before the transfer, if it did."""

    measured: Measured
    first_token: int
    verified: bool
    tier: str
    near_ties: int
    committed: int
    error: str | None
    choice: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        rest = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "measured"}
        return {**self.measured.to_json(), **rest}


class Client:
    """One connection to a sender, one engine. For one thread. A context manager."""

    def __init__(
        self, engine: TransformersEngine, sender: Sender, provider: str = "auto", host: str = "127.0.0.1"
    ) -> None:
        self.engine = engine
        self.sender = sender
        self._node = lynx.Node(provider, host)
        self._peer = lynx.Peer.connect(self._node, sender.host, sender.port, START_S)
        self._requests = 0
        self._cache: tuple[Path, StoredCache] | None = None

    def __enter__(self) -> Client:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave; the sender ends by itself."""
        self._peer.close()

    def cache(self, path: Path) -> StoredCache:
        """The stored cache as it is; the last one is kept."""
        if self._cache is None or self._cache[0] != path:
            self._cache = None
            self._cache = (path, read(path))
        return self._cache[1]

    def run(
        self, asked: Asked, mode: Mode, pace: Pace | None = None, on_event: Callable[[Event], object] = lambda _: None
    ) -> Answer:
        """Ask for the cache, decode, and tell. `pace` is what a policy that chooses is told of this machine.

        The clock starts with the message that asks; what goes before it, the sender's reading of the file and the
        first token's sampling, belongs to prefill. Raises what `lynx.runtime.decode` raises.
        """
        cache = self.cache(asked.cache)
        first = first_token(asked, cache)
        if mode.restored:
            return self._restored(asked, cache, first.token)
        assert mode.policy is not None
        policy, coding, choice = mode.policy(), mode.coding, None
        if pace is not None:
            choice = choose(policy, pace.conditions(self.engine.layers, asked.tokens, asked.rate, coding.exact))
            coding = coding if choice is None else coding_of(choice, exact=coding.exact)
        self._peer.send_message(json.dumps({"load": str(asked.cache.resolve())}).encode())
        if self._peer.receive_message(OFFER_S) is None:
            raise lynx.Timeout(f"the sender did not load {asked.cache} within {OFFER_S:g} s")
        self._requests += 1
        request = {"request_id": self._requests, **coding_to_json(coding), "first_token": first.token}
        stopwatch = Stopwatch()
        self._peer.send_message(json.dumps({**request, "bytes_per_second": asked.bytes_per_second}).encode())
        receiver = self._peer.accept_offer(OFFER_S)
        if receiver is None:
            raise lynx.Timeout(f"the sender offered nothing within {OFFER_S:g} s")
        try:
            done = self._decode(receiver, policy, asked, stopwatch, on_event)
        except BaseException as e:
            if not self._peer.lost and not isinstance(e, lynx.Cancelled):
                self._peer.cancel(receiver, reason_of(e))
            raise
        measured = stopwatch.measured
        measured.bytes = sum(receiver.revision.arrived_bytes)
        measured.equal_to = mode.equal_to
        if not self._peer.lost:
            self._peer.finish(receiver)
        return Answer(
            measured,
            first.token,
            done.verified,
            done.tier.name,
            done.near_ties,
            done.committed,
            None if done.error is None else type(done.error).__name__,
            None if choice is None else {name: getattr(choice, name) for name in choice.__dataclass_fields__},
        )

    def _decode(
        self, receiver: Any, policy: Any, asked: Asked, stopwatch: Stopwatch, on_event: Callable[[Event], object]
    ) -> Done:
        for event in decode(
            receiver,
            self.engine,
            policy,
            max_tokens=asked.tokens,
            end_tokens=asked.end_tokens,
            sampling=asked.sampling,
            prompt=asked.prompt,
            timeout_s=asked.timeout_s,
            on_loss=asked.on_loss,
        ):
            stopwatch.on_event(event)
            on_event(event)
        assert isinstance(event, Done)
        return event

    def _restored(self, asked: Asked, cache: StoredCache, first_token: int) -> Answer:
        """What KIVI's cache would give: its rows written here, after the time that its bytes take at that rate."""
        size = kivi.cache_bytes(self.engine.layers, len(asked.prompt))
        write(self.engine, asked, [kivi.restore(*pair) for pair in cache.layers])
        stopwatch = Stopwatch()
        time.sleep(size / asked.rate if asked.rate else 0)
        stopwatch.on_event(Started(first_token))
        tokens = []
        for token in stepwise(self.engine, asked, first_token):
            stopwatch.on_event(Drafted(token.token, token.margin))
            tokens.append(token.token)
        measured = stopwatch.measured
        measured.bytes, measured.tokens, measured.drafted = size, tokens, len(tokens)
        return Answer(measured, first_token, False, "ANCHOR", 0, 0, None, None)


def first_token(asked: Asked, cache: StoredCache) -> lynx.Sampled:
    """As prefill samples it."""
    return lynx.Sampler(asked.sampling).sample(cache.logits, len(asked.prompt), asked.prompt)


def write(engine: TransformersEngine, asked: Asked, layers: Sequence[tuple[Any, Any]]) -> None:
    """Start the engine on a cache that is there."""
    engine.start(len(asked.prompt), asked.tokens + 1, sampler=lynx.Sampler(asked.sampling), prompt=asked.prompt)
    for index, pair in enumerate(layers):
        for rows, source in zip(engine.prompt_rows(index), pair, strict=True):
            rows.copy_(source)


def stepwise(engine: TransformersEngine, asked: Asked, first_token: int) -> Iterator[lynx.Sampled]:
    """Blocking decoding on what the engine's rows hold: one token, one pass."""
    token = first_token
    for made in range(asked.tokens):
        [sampled] = engine.forward([token], len(asked.prompt) + made)
        yield sampled
        token = sampled.token
        if token in asked.end_tokens:
            return


@contextlib.contextmanager
def client(engine: TransformersEngine, provider: str = "auto") -> Iterator[Client]:
    """A sender on this machine and a client for it."""
    sender = Sender(provider)
    try:
        with Client(engine, sender, provider) as made:
            yield made
    finally:
        sender.close()


@contextlib.contextmanager
def client_across(engine: TransformersEngine, bits_per_second: int) -> Iterator[Client]:
    """A sender on one side of a link of that rate, and a client on the other: this thread, as long as it lasts.

    Raises `bench.fabric.link.LinkUnavailableError`.
    """
    with link.shaped(bits_per_second, MTU) as made:
        sender = Sender("auto", made.addresses[0], made.prefix(0))
        try:
            with _inside(made.names[1]), Client(engine, sender, "auto", made.addresses[1]) as one:
                yield one
        finally:
            sender.close()


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """Threads that are started meanwhile are in it too."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                raise link.LinkUnavailableError(f"cannot enter {path}: {os.strerror(ctypes.get_errno())}")
        finally:
            os.close(descriptor)

    outside = f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"
    home = os.open(outside, os.O_RDONLY)
    try:
        enter(f"/run/netns/{namespace}")
        try:
            yield
        finally:
            enter(f"/proc/self/fd/{home}")
    finally:
        os.close(home)
