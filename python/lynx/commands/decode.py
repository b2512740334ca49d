"""`lynx decode`: asks a prefill node for its cache, once for each mode, and decodes from it as it arrives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lynx
from lynx import models
from lynx.commands.events import Message, Sink
from lynx.commands.observe import Observer, observe
from lynx.commands.request import TransferRequest
from lynx.commands.steps import measure_steps
from lynx.measure import Measured, Stopwatch
from lynx.modes import Mode
from lynx.network import local_address
from lynx.planning import Conditions, coding_of
from lynx.policies import Policy, choose
from lynx.policies.base import name_of
from lynx.runtime import Arrived, Committed, Done, Drafted, Event, RolledBack, Started, StopStrings, decode
from lynx.transfer import CacheCoding, reason_of

CONNECT_TIMEOUT_S = 600.0  # The other side may still be loading its model and prefilling.
OFFER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """The command's arguments."""

    host: str
    port: int
    modes: Sequence[Mode]
    tokens: int
    model: str
    provider: str
    bytes_per_second: int
    policy: Policy | None  # for mode lynx, instead of its own
    wait: bool
    timeout_s: float
    sampling: lynx.Sampling
    stop: Sequence[str]  # strings that end the text
    key: lynx.PresharedKey | None
    trace: Path | None = None
    metrics_port: int | None = None


def run(options: DecodeOptions, emit: Sink) -> dict[str, Any]:
    """Decode in every mode; the result, as it stands in the JSON."""
    with observe("decode", options.trace, options.metrics_port, emit) as observer:
        return _run(options, emit, observer)


def _run(options: DecodeOptions, emit: Sink, observer: Observer) -> dict[str, Any]:
    from lynx.engines.transformers import TransformersEngine

    models.resolve(options.model)
    node = lynx.Node(options.provider, local_address(options.host, options.port))
    observer.node(node)
    if not options.wait:
        # Without waiting, an address that is wrong is told before the model is loaded.
        peer = _connect(node, options, emit)
    emit({"event": "status", "text": f"loading {options.model} (a .gguf file is converted on its first use)"})
    loaded = models.load(options.model)
    engine = TransformersEngine(loaded.model)
    if options.wait:
        peer = _connect(node, options, emit)

    about = _about(peer, loaded.name)
    emit({"event": "status", "text": "measuring how long a step takes"})
    step_s, token_s = measure_steps(engine, about["context_tokens"])
    prompt = about.pop("token_ids")
    emit({"event": "prefilled", **about})
    rate = _lower_rate(about["bandwidth_bytes_per_s"], options.bytes_per_second)
    conditions = Conditions(
        tuple(engine.layers), about["context_tokens"], options.tokens, rate, step_s=step_s, token_s=token_s
    )
    text = _TextOptions(loaded.tokenizer, options.stop)
    client = _Client(peer, engine, prompt, text, _end_tokens(loaded.model), conditions, options, emit, observer)
    measured: dict[str, Measured] = {}
    for number, mode in enumerate(options.modes):
        policy, about_mode = mode.policy, mode.about
        if options.policy is not None and mode.name == "lynx":
            policy, about_mode = options.policy, f"by the policy {name_of(options.policy)}"
        emit({"event": "mode", "mode": mode.name, "about": about_mode})
        m = measured[mode.name] = client.run(number + 1, mode, policy)
        m.equal_to = mode.equal_to
        if mode.equal_to in measured:
            m.equal = m.tokens == measured[mode.equal_to].tokens
        emit({"event": "measured", "mode": mode.name, "measured": m.to_json()})

    result = {
        "model": about["model"],
        "context_tokens": about["context_tokens"],
        "new_tokens": options.tokens,
        "bandwidth_bytes_per_s": rate,
        "step_s": step_s,
        "provider": node.provider,
        "prefill_s": about["prefill_s"],
        "live": about["live"],
        "modes": {name: m.to_json() for name, m in measured.items()},
    }
    emit({"event": "result", "result": result})
    return result


def _connect(node: lynx.Node, options: DecodeOptions, emit: Sink) -> lynx.Peer:
    emit({"event": "status", "text": f"waiting for the prefill node at {options.host}:{options.port}"})
    return lynx.Peer.connect(
        node, options.host, options.port, CONNECT_TIMEOUT_S, wait_for_listener=options.wait, key=options.key
    )


def _about(peer: lynx.Peer, model: str) -> Message:
    message = peer.receive_message(OFFER_TIMEOUT_S)
    if message is None:
        raise lynx.Timeout(f"{peer.name} did not say what it has prefilled within {OFFER_TIMEOUT_S:g} s")
    try:
        about: Message = json.loads(message)
    except (ValueError, RecursionError):
        about = {}
    wanted = {
        "model": str,
        "context_tokens": int,
        "prefill_s": float | None,
        "live": bool,
        "bandwidth_bytes_per_s": int,
        "question": str,
        "token_ids": list,
    }
    known = isinstance(about, dict) and all(isinstance(about.get(key), kind) for key, kind in wanted.items())
    if not known or about["context_tokens"] < 1 or about["bandwidth_bytes_per_s"] < 0:
        raise lynx.ProtocolError(f"{peer.name} did not say what it has prefilled in words that this Lynx understands")
    if len(about["token_ids"]) != about["context_tokens"] or not all(type(t) is int for t in about["token_ids"]):
        raise lynx.ProtocolError(f"{peer.name} did not say which {about['context_tokens']} tokens it has prefilled")
    if about["model"] != model:
        raise lynx.ProtocolError(
            f"{peer.name} has prefilled {about['model']!r}, this node has loaded {model!r}: "
            "give both sides the same --model"
        )
    return about


def _check_coding(manifest: lynx.Manifest, asked: CacheCoding) -> None:
    codings = {tensor.spec.coding for tensor in manifest.tensors}
    exact = all(tensor.spec.exact for tensor in manifest.tensors)
    offered = (manifest.parts, manifest.rungs, exact)
    if codings != {asked.coding} or offered != (asked.parts, asked.rungs, asked.exact):
        raise lynx.ProtocolError(
            f"{asked.coding.name} with (parts, rungs, exact) {(asked.parts, asked.rungs, asked.exact)} was asked for; "
            f"{', '.join(sorted(c.name for c in codings))} with {offered} was offered"
        )


def _end_tokens(model: Any) -> list[int]:
    ids = model.generation_config.eos_token_id
    return [] if ids is None else list(ids) if isinstance(ids, Sequence) else [ids]


def _lower_rate(a: int, b: int) -> int:
    return a + b if 0 in (a, b) else min(a, b)


class _Client:
    """One connection, one engine; a request at a time."""

    def __init__(
        self,
        peer: lynx.Peer,
        engine: Any,
        prompt: list[int],
        text: _TextOptions,
        end_tokens: list[int],
        conditions: Conditions,
        options: DecodeOptions,
        emit: Sink,
        observer: Observer,
    ) -> None:
        self._peer = peer
        self._engine = engine
        self._prompt = prompt
        self._text = text
        self._end_tokens = end_tokens
        self._conditions = conditions
        self._options = options
        self._emit = emit
        self._observer = observer

    def run(self, request_id: int, mode: Mode, policy: Policy) -> Measured:
        stopwatch = Stopwatch()
        coding = self._coding(mode, policy)
        self._peer.send_message(TransferRequest(request_id, coding, self._options.sampling).serialize())
        receiver = self._peer.accept_offer(OFFER_TIMEOUT_S, bytes_per_second=self._options.bytes_per_second)
        if receiver is None:
            raise lynx.Timeout(f"{self._peer.name} offered nothing within {OFFER_TIMEOUT_S:g} s")
        try:
            _check_coding(receiver.manifest, coding)
            text = _Text(self._text, self._emit)
            policy, note = self._observer.loop(request_id, policy)
            for event in decode(
                receiver,
                self._engine,
                policy,
                max_tokens=self._options.tokens,
                end_tokens=self._end_tokens,
                ends=self._text.stop,
                sampling=self._options.sampling,
                prompt=self._prompt,
                timeout_s=self._options.timeout_s,
                step_s=self._conditions.step_s,
            ):
                stopwatch.on_event(event)
                note(event)
                text.on_event(event)
        except BaseException as e:
            if not self._peer.lost and not isinstance(e, lynx.Cancelled):
                self._peer.cancel(receiver, reason_of(e))
            raise
        finally:
            self._observer.transfer(receiver)
        stopwatch.measured.bytes = sum(receiver.revision.arrived_bytes)
        self._peer.finish(receiver)
        self._see_rate(receiver)
        return stopwatch.measured

    def _coding(self, mode: Mode, policy: Policy) -> CacheCoding:
        """The mode's, or what the policy chooses under what is known by now."""
        choice = choose(policy, replace(self._conditions, exact=mode.coding.exact))
        if choice is None:
            return mode.coding
        bits = " + ".join(str(bits) for bits in choice.anchor_bits)
        chosen = f"drafts on an anchor of {bits} bits of K and V, then {choice.rungs} further parts"
        if not choice.draft:
            chosen = "does not speculate: all planes, layer by layer"
        self._emit({"event": "status", "text": f"{name_of(policy)} {chosen}"})
        return coding_of(choice, exact=mode.coding.exact)

    def _see_rate(self, receiver: lynx.PlaneReceiver) -> None:
        """How fast the link is: what the transfer before has shown, unless somebody has said so."""
        timeline = receiver.timeline()
        if self._conditions.bytes_per_second or not timeline:
            return
        seconds = (max(p.last_ns for p in timeline) - min(p.first_ns for p in timeline)) / 1e9
        if seconds > 0:
            self._conditions = replace(
                self._conditions, bytes_per_second=sum(receiver.revision.arrived_bytes) / seconds
            )


class _TextOptions:
    """How tokens become text, and what ends it."""

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self.stop = StopStrings(self.detokenize, stop)

    def detokenize(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text


class _Text:
    """Events of the decode loop to events for people, with the tokens as text."""

    def __init__(self, options: _TextOptions, emit: Sink) -> None:
        self._detokenize = options.detokenize
        self._stop = options.stop
        self._emit = emit
        self._committed: list[int] = []
        self._drafted: list[int] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self._emit({"event": "arrived", "anchor": event.anchor, "residual": event.residual})
            return
        if isinstance(event, Started):
            self._committed.append(event.first_token)
        elif isinstance(event, Drafted):
            self._drafted.append(event.token)
        elif isinstance(event, RolledBack):
            self._drafted = self._drafted[: -event.count]
            self._emit({"event": "rolled_back", "count": event.count})
            return
        elif isinstance(event, Committed):
            self._committed += event.tokens
            self._drafted = self._drafted[event.accepted :]
        elif isinstance(event, Done):
            return
        committed = self._stop.trim(self._detokenize(self._committed))
        whole = self._stop.trim(self._detokenize(self._committed + self._drafted))
        self._emit({"event": "text", "committed": committed, "drafted": whole[len(committed) :]})
