"""`lynx prefill`: sends a prompt's cache to every decode node that asks, in the coding that each asks for.

The prompt is run once, before the first of them comes, or with `live` anew for each request, while its cache is sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import lynx
from lynx import models, prompts
from lynx.commands.events import Message, Sink
from lynx.commands.observe import Observer, observe
from lynx.commands.request import TransferRequest
from lynx.engines import Engine, Prefilled
from lynx.transfer import CacheSender, make_manifest, send_cache
from lynx.units import format_bandwidth

ACCEPT_SLICE_S = 3600.0


@dataclass(frozen=True, slots=True)
class PrefillOptions:
    """The command's arguments."""

    host: str
    port: int
    context_tokens: int
    model: str
    provider: str
    bytes_per_second: int
    once: bool
    live: bool
    key: lynx.PresharedKey | None
    insecure: bool
    trace: Path | None = None
    metrics_port: int | None = None


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What is prefilled, and the cache if it has been."""

    model: str
    engine: Engine
    token_ids: Sequence[int]
    prefilled: Prefilled | None
    about: Message  # what a decode node is told


def run(options: PrefillOptions, emit: Sink) -> None:
    """Prefill, listen, serve. Returns after the first peer with `once`, else only by an error or Ctrl-C."""
    with observe("prefill", options.trace, options.metrics_port, emit) as observer:
        _run(options, emit, observer)


def _run(options: PrefillOptions, emit: Sink, observer: Observer) -> None:
    # Everything that can be wrong with the arguments is found out before the long work starts.
    models.resolve(options.model)
    if options.host in ("0.0.0.0", "::"):
        raise ValueError(
            f"--listen {options.host}: name one address of this machine, which decode nodes can write from"
        )
    node = lynx.Node(options.provider, options.host)
    listener = lynx.Listener(node, options.host, options.port, key=options.key, allow_unauthenticated=options.insecure)
    observer.node(node)

    prompt = _load(options, emit)
    emit({"event": "prefilled", **{name: value for name, value in prompt.about.items() if name != "token_ids"}})
    emit({"event": "listening", "address": f"{options.host}:{listener.port}"})
    while True:
        try:
            peer = listener.accept(ACCEPT_SLICE_S)
        except lynx.Error as e:
            emit({"event": "status", "text": f"a connection was dropped: {e}"})
            continue
        if peer is None:
            continue
        emit({"event": "status", "text": f"{peer.name} connected"})
        _serve(peer, prompt, options.bytes_per_second, emit, observer)
        if options.once:
            return


def _load(options: PrefillOptions, emit: Sink) -> _Prompt:
    from lynx.engines.transformers import TransformersEngine

    emit({"event": "status", "text": f"loading {options.model} (a .gguf file is converted on its first use)"})
    loaded = models.load(options.model)
    prompt = prompts.build(loaded.tokenizer, options.context_tokens)
    engine = TransformersEngine(loaded.model)
    prefilled: Prefilled | None = None
    begin = time.monotonic()
    if options.live:
        # The first pass pays for allocations and kernel choices that belong to no request.
        engine.prefill(prompt.token_ids[: engine.prefill_chunk_tokens])
    else:
        prefilled = engine.prefill(prompt.token_ids, _Progress(emit))
    about = {
        "model": loaded.name,
        "context_tokens": len(prompt.token_ids),
        "question": prompt.question,
        "token_ids": list(prompt.token_ids),
        "prefill_s": None if options.live else time.monotonic() - begin,
        "live": options.live,
        "bandwidth_bytes_per_s": options.bytes_per_second,
    }
    return _Prompt(loaded.name, engine, prompt.token_ids, prefilled, about)


class _Progress:
    def __init__(self, emit: Sink) -> None:
        self._emit = emit

    def __call__(self, done: int, total: int) -> None:
        self._emit({"event": "progress", "text": "prefill", "done": done, "total": total})


def _serve(peer: lynx.Peer, prompt: _Prompt, bytes_per_second: int, emit: Sink, observer: Observer) -> None:
    """Answer one peer until it leaves. Nothing that it asks or does ends this process."""
    try:
        peer.send_message(json.dumps(prompt.about).encode())
        while True:
            message = peer.receive_message(ACCEPT_SLICE_S)
            if message is not None:
                _transfer(peer, prompt, TransferRequest.parse(message), bytes_per_second, emit, observer)
    except lynx.PeerLost:
        emit({"event": "status", "text": f"{peer.name} left"})
    except (lynx.Error, ValueError, RecursionError) as e:
        emit({"event": "status", "text": f"{peer.name} was dropped: {type(e).__name__}: {e}"})


def _transfer(
    peer: lynx.Peer,
    prompt: _Prompt,
    request: TransferRequest,
    bytes_per_second: int,
    emit: Sink,
    observer: Observer,
) -> None:
    request_id = request.request_id
    rate = format_bandwidth(bytes_per_second)
    emit({"event": "status", "text": f"sending request {request_id} to {peer.name}, {rate}"})
    senders: list[lynx.PlaneSender] = []
    sampler, token_ids = lynx.Sampler(request.sampling), prompt.token_ids
    try:
        cache = prompt.prefilled
        manifest = make_manifest(
            prompt.engine.layers,
            len(token_ids),
            request.coding,
            request_id=request_id,
            model=prompt.model,
            first_token=-1 if cache is None else sampler.sample(cache.logits, len(token_ids), token_ids).token,
            piece_tokens=prompt.engine.prefill_chunk_tokens if cache is None else None,
        )
        if cache is None:
            _send_live(peer, prompt, sampler, manifest, bytes_per_second, emit, senders.append)
        else:
            send_cache(peer, manifest, cache.layers, bytes_per_second=bytes_per_second, on_granted=senders.append)
    except (lynx.Cancelled, lynx.Timeout, lynx.ProtocolError) as e:
        # The request has ended; the peer may ask again.
        emit({"event": "status", "text": str(e)})
    except lynx.PeerLost as e:
        emit({"event": "status", "text": f"request {request_id} was not finished: {e}"})
        raise
    finally:
        for sender in senders:
            observer.transfer(sender)


def _send_live(
    peer: lynx.Peer,
    prompt: _Prompt,
    sampler: lynx.Sampler,
    manifest: lynx.Manifest,
    bytes_per_second: int,
    emit: Sink,
    on_granted: Callable[[lynx.PlaneSender], object],
) -> None:
    with CacheSender(peer, manifest, bytes_per_second=bytes_per_second, on_granted=on_granted) as sender:
        prefilled = prompt.engine.prefill(prompt.token_ids, _Progress(emit), sender.put, sampler)
        sender.finish(prefilled.first_token)
