"""`lynx prefill`: runs a prompt once, then sends its cache to every decode node that asks, as each asks for it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import lynx
from lynx import models, prompts
from lynx.commands.events import Message, Sink
from lynx.modes import coding_from_json
from lynx.transfer import Layers, make_manifest, send_cache
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
    key: lynx.PresharedKey | None
    insecure: bool


@dataclass(frozen=True, slots=True)
class _Cache:
    model: str
    layers: Layers
    first_token: int
    about: Message  # what a decode node is told


def run(options: PrefillOptions, emit: Sink) -> None:
    """Prefill, listen, serve. Returns after the first peer with `once`, else only by an error or Ctrl-C."""
    # Everything that can be wrong with the arguments is found out before the long work starts.
    models.resolve(options.model)
    if options.host in ("0.0.0.0", "::"):
        raise ValueError(
            f"--listen {options.host}: name one address of this machine, which decode nodes can write from"
        )
    node = lynx.Node(options.provider, options.host)
    listener = lynx.Listener(node, options.host, options.port, key=options.key, allow_unauthenticated=options.insecure)

    cache = _prefill(options, emit)
    emit({"event": "prefilled", **cache.about})
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
        _serve(peer, cache, options.bytes_per_second, emit)
        if options.once:
            return


def _prefill(options: PrefillOptions, emit: Sink) -> _Cache:
    from lynx.engines.transformers import TransformersEngine

    emit({"event": "status", "text": f"loading {options.model} (a .gguf file is converted on its first use)"})
    loaded = models.load(options.model)
    prompt = prompts.build(loaded.tokenizer, options.context_tokens)
    engine = TransformersEngine(loaded.model)

    def on_progress(done: int, total: int) -> None:
        emit({"event": "progress", "text": "prefill", "done": done, "total": total})

    begin = time.monotonic()
    prefilled = engine.prefill(prompt.token_ids, on_progress)
    about = {
        "model": loaded.name,
        "context_tokens": len(prompt.token_ids),
        "question": prompt.question,
        "prefill_s": time.monotonic() - begin,
        "bandwidth_bytes_per_s": options.bytes_per_second,
    }
    return _Cache(loaded.name, prefilled.layers, prefilled.first_token, about)


def _serve(peer: lynx.Peer, cache: _Cache, bytes_per_second: int, emit: Sink) -> None:
    """Answer one peer until it leaves. Nothing that it asks or does ends this process."""
    try:
        peer.send_message(json.dumps(cache.about).encode())
        while True:
            message = peer.receive_message(ACCEPT_SLICE_S)
            if message is not None:
                _transfer(peer, cache, _parse(message), bytes_per_second, emit)
    except lynx.PeerLost:
        emit({"event": "status", "text": f"{peer.name} left"})
    except (lynx.Error, ValueError, RecursionError) as e:
        emit({"event": "status", "text": f"{peer.name} was dropped: {type(e).__name__}: {e}"})


def _parse(message: bytes) -> dict[str, Any]:
    request = json.loads(message)
    request_id = request.get("request_id") if isinstance(request, dict) else None
    if not isinstance(request_id, int) or not 0 <= request_id < 2**64:
        raise ValueError("a request for a transfer was not understood")
    return request  # type: ignore[no-any-return]


def _transfer(peer: lynx.Peer, cache: _Cache, request: dict[str, Any], bytes_per_second: int, emit: Sink) -> None:
    manifest = make_manifest(
        cache.layers,
        coding_from_json(request),
        request_id=request["request_id"],
        model=cache.model,
        first_token=cache.first_token,
    )
    rate = format_bandwidth(bytes_per_second)
    emit({"event": "status", "text": f"sending request {manifest.request_id} to {peer.name}, {rate}"})
    try:
        send_cache(peer, manifest, cache.layers, bytes_per_second=bytes_per_second)
    except (lynx.Cancelled, lynx.Timeout, lynx.ProtocolError) as e:
        # The request has ended; the peer may ask again.
        emit({"event": "status", "text": str(e)})
