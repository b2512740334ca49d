"""What `--trace` and `--metrics-port` turn on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import lynx
from lynx.commands.events import Sink
from lynx.runtime import Event
from lynx.trace import LoopTrace, Trace

LAST_WRITES_TIMEOUT_S = 1.0


class Observer:
    """Is shown what a command does. Does nothing with it that was not asked for."""

    def __init__(self, trace: Trace | None, metrics_port: int | None, emit: Sink, until: ExitStack) -> None:
        self._trace = trace
        self._metrics_port = metrics_port
        self._emit = emit
        self._until = until

    def node(self, node: lynx.Node) -> None:
        """The node, once there is one."""
        if self._metrics_port is None:
            return
        try:
            from lynx import metrics
        except ImportError as e:
            raise ImportError("--metrics-port needs prometheus-client: pip install 'lynx-kv[metrics]'") from e
        server = self._until.enter_context(metrics.serve(node, self._metrics_port))
        self._emit({"event": "status", "text": f"metrics at {server.url}"})

    def transfer(self, transfer: lynx.PlaneSender | lynx.PlaneReceiver) -> None:
        """A transfer at its end, however it ended."""
        if self._trace is None:
            return
        if isinstance(transfer, lynx.PlaneSender):
            # The receiver may have confirmed before this side's provider has told of the last writes.
            with suppress(lynx.Error):
                transfer.wait_written(LAST_WRITES_TIMEOUT_S)
        self._trace.add(transfer)

    def loop(self, request_id: int, policy: Any) -> tuple[Any, Callable[[Event], None]]:
        """A decode loop that begins: the policy for it, and what is to be told of its events."""
        if self._trace is None:
            return policy, lambda _: None
        loop = LoopTrace(self._trace, f"request {request_id} decode loop")
        return loop.watch(policy), loop.on_event


@contextmanager
def observe(process: str, trace: Path | None, metrics_port: int | None, emit: Sink) -> Iterator[Observer]:
    """An observer for a command that runs as `process`; what it has opened is closed at the end."""
    with ExitStack() as until:
        yield Observer(until.enter_context(Trace(trace, process)) if trace else None, metrics_port, emit, until)
