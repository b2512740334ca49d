"""Goodput and latency between two processes of this machine, Lynx beside what else could move the bytes."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from .ends import EndError, Kind, Pair, native, python
from .results import Goodput, Latency

HOST = "127.0.0.1"
TOTAL_BYTES = 256 << 20
CHUNK_BYTES = 1 << 20
LATENCY_BYTES = 4 << 10
PROVIDERS = ("net", "tcp", "tcp;ofi_rxm", "shm")

LYNX = "lynx"
WITHOUT_CHECKSUMS = "lynx no-checksums"
BARE = "bare"
NIXL = "nixl"
MOONCAKE = "mooncake"

_MIN_REPETITIONS = 5
_MAX_REPETITIONS = 40
_ROUND_TRIPS = 300
_LATENCY_REPETITIONS = 5

OnNote = Callable[[str], None]


def contenders(program: Path, provider: str, on_note: OnNote) -> dict[str, Kind]:
    """What can be measured over this provider's transport here."""
    kinds = {
        BARE: native("bare", program, provider, TOTAL_BYTES, HOST),
        LYNX: native("lynx", program, provider, TOTAL_BYTES, HOST),
        WITHOUT_CHECKSUMS: native("lynx", program, provider, TOTAL_BYTES, HOST, "no-checksums"),
    }
    over_tcp = provider != "shm"
    if importlib.util.find_spec("nixl_cu12"):
        # UCX's own choice within a machine is shared memory.
        environment = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"} if over_tcp else {}
        kinds[NIXL] = python("nixl", TOTAL_BYTES, **environment)
    else:
        on_note("NIXL was not measured: nixl-cu12 is not installed; `make bench-fabric` installs it")
    if over_tcp and importlib.util.find_spec("mooncake"):
        kinds[MOONCAKE] = python("mooncake", TOTAL_BYTES)
    elif over_tcp:
        on_note("Mooncake was not measured: it is not installed; `make bench-fabric` installs it")
    return kinds


class Contest:
    """The pairs of one provider's contenders. A pair that fails is out, with a note; Lynx's failure is an error."""

    def __init__(self, pairs: dict[str, Pair], on_note: OnNote) -> None:
        self.pairs = pairs
        self._on_note = on_note

    @classmethod
    @contextlib.contextmanager
    def of(cls, kinds: dict[str, Kind], on_note: OnNote) -> Iterator[Contest]:
        """With all pairs started, as long as the context lasts."""
        with contextlib.ExitStack() as stack:
            contest = cls({}, on_note)
            for name, kind in kinds.items():
                contest._try(name, functools.partial(contest._start, name, kind, stack))
            yield contest

    def goodput(self, provider: str, chunk_bytes: int, seconds: float, on_step: Callable[[float], None]) -> Goodput:
        """In turns, for about so many seconds; `on_step` gets the share that is done."""
        samples: dict[str, list[float]] = {name: [] for name in self.pairs}
        self._in_turns(lambda _, pair: pair.goodput(chunk_bytes, TOTAL_BYTES))  # memory is touched, peers connected
        begin = time.monotonic()
        for done in range(1, _MAX_REPETITIONS + 1):
            self._in_turns(lambda name, pair: samples[name].append(pair.goodput(chunk_bytes, TOTAL_BYTES)))
            spent = time.monotonic() - begin
            if spent >= seconds and done >= _MIN_REPETITIONS:
                break
            on_step(min(spent / seconds if seconds else 1.0, done / _MIN_REPETITIONS, 1.0))
        on_step(1.0)
        measured = {name: samples[name] for name in self.pairs}
        return Goodput(provider, chunk_bytes, TOTAL_BYTES, measured)

    def latency(self, provider: str, on_step: Callable[[float], None]) -> list[Latency]:
        """Of single writes."""
        arrivals: dict[str, list[float]] = {}
        delivered: dict[str, list[float]] = {}

        def measure(name: str, pair: Pair) -> None:
            _, sent = pair.run(f"latency {LATENCY_BYTES} {_ROUND_TRIPS}")
            if "round_trips_ns" in sent:
                arrivals.setdefault(name, []).append(sent["round_trips_ns"] / sent["count"] / 2e9)
            if "delivered_ns" in sent:
                delivered.setdefault(name, []).append(sent["delivered_ns"] / sent["count"] / 1e9)

        for done in range(_LATENCY_REPETITIONS):
            self._in_turns(measure)
            on_step((done + 1) / _LATENCY_REPETITIONS)

        def of(samples: dict[str, list[float]], name: str) -> float | None:
            return median(samples[name]) if name in samples else None

        return [Latency(provider, name, of(arrivals, name), of(delivered, name)) for name in self.pairs]

    def _start(self, name: str, kind: Kind, stack: contextlib.ExitStack) -> None:
        self.pairs[name] = stack.enter_context(Pair.of(kind))

    def _in_turns(self, measure: Callable[[str, Pair], object]) -> None:
        for name, pair in list(self.pairs.items()):
            self._try(name, functools.partial(measure, name, pair))

    def _try(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except EndError as e:
            self._out(name, e)

    def _out(self, name: str, error: EndError) -> None:
        if name in (LYNX, WITHOUT_CHECKSUMS):
            raise error
        pair = self.pairs.pop(name, None)
        if pair is not None:
            pair.close()
        self._on_note(f"{name} was not measured: {error}")


def usable(wanted: Sequence[str] | None, found: dict[str, bool]) -> list[str]:
    """The providers to measure, of those that are `found` and whether they are usable.

    Raises ValueError if one is wanted by name that is not usable here.
    """
    for provider in wanted or ():
        if not found.get(provider):
            raise ValueError(f"provider '{provider}' is not usable here; `lynx info` says why")
    return list(wanted) if wanted else [provider for provider in PROVIDERS if found.get(provider)]
