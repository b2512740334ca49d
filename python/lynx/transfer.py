"""A whole cache as one transfer: the manifest of its tensors, and putting them on the wire.

`send_cache` sends a cache that is there; a `CacheSender` sends one while prefill computes it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from lynx._core import (
    DEFAULT_KEY_ANCHOR_BITS,
    DEFAULT_SINK_TOKENS,
    DEFAULT_VALUE_ANCHOR_BITS,
    MAX_RUNGS,
    Cancelled,
    Coding,
    DType,
    Manifest,
    ManifestTensor,
    Peer,
    PlaneSender,
    TensorRole,
    TensorSpec,
    Timeout,
)

Layers = Sequence[tuple[Any, Any]]
"""(K, V) for each layer: tensors of [heads, tokens, head_dim] that speak DLPack."""


@dataclass(frozen=True, slots=True)
class CacheCoding:
    """How a cache is sent: the anchors alone if `parts` is given as 1, else the residuals too and, with `exact`, the
    exact tier, so that what is verified is bf16's output. The raw coding has no other part.

    The residual travels in `rungs` parts, 1 to 7. More than one is the plane ladder: each rung adds a plane of all
    layers, the last one all that are left, and every rung can be decoded as it is complete. `parts` follows from these
    and is read only, but for the 1: 1 + rungs, or 2 + rungs with the exact tier.

    The anchor has the first planes of each token, by default more of K than of V, and all planes of the first
    `sink_tokens` tokens. With `thin_last_value` the last layer's V, whose error costs least, has a plane less than the
    other layers' (but at least one): that pays for the sinks of all.
    """

    coding: Coding = Coding.PLANES
    parts: int = 2
    key_anchor_bits: int = DEFAULT_KEY_ANCHOR_BITS
    value_anchor_bits: int = DEFAULT_VALUE_ANCHOR_BITS
    sink_tokens: int = DEFAULT_SINK_TOKENS
    thin_last_value: bool = True
    exact: bool = False
    rungs: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rungs <= MAX_RUNGS:
            raise ValueError(f"rungs is {self.rungs}; it has to be 1 to {MAX_RUNGS}")
        if self.coding == Coding.RAW and self.rungs > 1:
            raise ValueError(f"rungs is {self.rungs}; the raw coding has no residual to cut: leave it at 1")
        if self.exact or self.parts != 1:
            object.__setattr__(self, "parts", 1 + self.rungs + self.exact)

    def anchor_bits(self, layer: int, layers: int) -> tuple[int, int]:
        """Planes of K and of V in the anchor of one of `layers` layers."""
        thin = self.thin_last_value and layer == layers - 1
        return self.key_anchor_bits, max(self.value_anchor_bits - thin, 1)


RAW = CacheCoding(Coding.RAW, parts=1)


def make_manifest(
    shapes: Sequence[tuple[int, int]],
    context_tokens: int,
    how: CacheCoding,
    *,
    request_id: int,
    model: str,
    first_token: int = -1,
    piece_tokens: int | None = None,
    dtype: DType = DType.BF16,
) -> Manifest:
    """Describe a cache, in sending order: K and V of each layer, whose (heads, head_dim) are `shapes`.

    With `piece_tokens` each tensor is cut into pieces of so many tokens, each of which is put and sent by itself.
    `first_token` is -1 as long as prefill has not sampled it. Elements are of `dtype`.
    """
    if context_tokens < 1 or (piece_tokens is not None and piece_tokens < 1):
        raise ValueError(f"a cache of {context_tokens} tokens in pieces of {piece_tokens}; both have to be at least 1")
    tensors = []
    for layer, (heads, head_dim) in enumerate(shapes):
        bits = how.anchor_bits(layer, len(shapes))
        for role, anchor_bits in zip((TensorRole.KEY, TensorRole.VALUE), bits, strict=True):
            for begin in range(0, context_tokens, piece_tokens or context_tokens):
                spec = TensorSpec(
                    heads,
                    min(piece_tokens or context_tokens, context_tokens - begin),
                    head_dim,
                    coding=how.coding,
                    dtype=dtype,
                    anchor_bits=anchor_bits,
                    sink_tokens=max(how.sink_tokens - begin, 0),
                    exact=how.exact,
                )
                tensors.append(ManifestTensor(layer, role, spec, first_token=begin))
    return Manifest(
        request_id,
        tensors,
        model=model,
        context_tokens=context_tokens,
        first_token=first_token,
        parts=how.parts,
        rungs=how.rungs,
    )


def reason_of(error: BaseException) -> str:
    """What the other side is told of an error that ends a transfer here."""
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"


def send_cache(
    peer: Peer,
    manifest: Manifest,
    layers: Layers,
    *,
    bytes_per_second: int = 0,
    timeout_s: float = 120.0,
    on_granted: Callable[[PlaneSender], object] | None = None,
) -> None:
    """Offer the manifest, code and send every layer, and wait until the receiver has confirmed. `on_granted` is shown
    the sender before anything is put.

    Raises `Timeout`, `Cancelled` if the receiver gave up, `PeerLost`, or what refused the offer. On any error
    of this side, Ctrl-C included, the receiver is told.
    """
    sender = peer.offer(manifest, bytes_per_second=bytes_per_second)
    try:
        if on_granted is not None:
            on_granted(sender)
        for index, (keys, values) in enumerate(layers):
            sender.put(index, TensorRole.KEY, keys)
            sender.put(index, TensorRole.VALUE, values)
        _confirm(peer, sender, manifest, timeout_s)
    except BaseException as e:
        _give_up(peer, sender, e)
        raise


class CacheSender:
    """Codes and sends a cache on a thread of its own while prefill computes it.

        with CacheSender(peer, manifest) as sender:
            prefilled = engine.prefill(token_ids, on_rows=sender.put)
            sender.finish(prefilled.first_token)

    The manifest's pieces are the engine's prefill chunks. What leaves the block before `finish` has returned, Ctrl-C
    included, cancels the transfer, and the receiver is told why. For one thread.
    """

    def __init__(
        self,
        peer: Peer,
        manifest: Manifest,
        *,
        bytes_per_second: int = 0,
        queued: int = 16,
        timeout_s: float = 10.0,
        on_granted: Callable[[PlaneSender], object] | None = None,
    ) -> None:
        """Offer the manifest and wait `timeout_s` for the grant. At most `queued` pieces wait to be coded: where the
        codec is slower than prefill, prefill waits, and memory stays bounded. `on_granted` is as for `send_cache`.

        Raises as `Peer.offer` does.
        """
        self._peer = peer
        self._manifest = manifest
        self._sender = peer.offer(manifest, timeout_s, bytes_per_second=bytes_per_second)
        if on_granted is not None:
            on_granted(self._sender)
        self._queue: queue.Queue[tuple[int, int, Any, Any] | None] = queue.Queue(queued)
        self._error: BaseException | None = None
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="lynx cache sender", daemon=True)
        self._thread.start()

    def put(self, layer: int, first_token: int, keys: Any, values: Any) -> None:
        """Queue the piece of `layer` from `first_token` on: K and V, [heads, tokens, head_dim], which nobody may
        write any more. Waits while the queue is full.

        Raises what ended the transfer: `Cancelled` if the receiver gave up, `PeerLost`, ...
        """
        if self._error is not None:
            raise self._error
        self._queue.put((layer, first_token, keys, values))

    def finish(self, first_token: int, timeout_s: float = 120.0) -> None:
        """Tell the first token, if the manifest has none, and wait until the receiver has confirmed all of it.

        Raises what ended the transfer, and `Timeout`.
        """
        if self._manifest.first_token < 0:
            self._peer.send_first_token(self._sender, first_token)
        self._stop()
        if self._error is not None:
            raise self._error
        _confirm(self._peer, self._sender, self._manifest, timeout_s)
        self._finished = True

    def __enter__(self) -> CacheSender:
        """Return the sender itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancel what is not finished, and end the thread."""
        if not self._finished:
            # Before the thread is waited for: what it puts then fails at once.
            _give_up(self._peer, self._sender, error or RuntimeError("the sender was left before it had finished"))
        self._stop()
        self._error = None  # its traceback holds this sender: a cycle, which would keep the transfer's memory

    def _stop(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (piece := self._queue.get()) is not None:
            # After an error pieces are dropped, so that nobody waits at a full queue.
            if self._error is not None:
                continue
            layer, first_token, keys, values = piece
            try:
                self._sender.put(layer, TensorRole.KEY, keys, first_token=first_token)
                self._sender.put(layer, TensorRole.VALUE, values, first_token=first_token)
            except BaseException as e:
                self._error = e


def _confirm(peer: Peer, sender: PlaneSender, manifest: Manifest, timeout_s: float) -> None:
    if not peer.finish(sender, timeout_s):
        raise Timeout(f"request {manifest.request_id} was not confirmed by {peer.name} within {timeout_s:g} s")


def _give_up(peer: Peer, sender: PlaneSender, error: BaseException) -> None:
    if not peer.lost and not isinstance(error, Cancelled):
        peer.cancel(sender, reason_of(error))
