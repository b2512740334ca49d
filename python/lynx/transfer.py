"""A whole cache as one transfer: the manifest of its tensors, and putting them on the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lynx._core import (
    DEFAULT_KEY_ANCHOR_BITS,
    DEFAULT_SINK_TOKENS,
    DEFAULT_VALUE_ANCHOR_BITS,
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
    """How a cache is sent. `parts` is 1 to send the anchors alone; the raw coding has no other part.

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

    def anchor_bits(self, layer: int, layers: int) -> tuple[int, int]:
        """Planes of K and of V in the anchor of one of `layers` layers."""
        thin = self.thin_last_value and layer == layers - 1
        return self.key_anchor_bits, max(self.value_anchor_bits - thin, 1)


RAW = CacheCoding(Coding.RAW, parts=1)


def make_manifest(
    layers: Layers,
    how: CacheCoding,
    *,
    request_id: int,
    model: str,
    first_token: int,
    dtype: DType = DType.BF16,
) -> Manifest:
    """Describe `layers`, whose elements are of `dtype`, in sending order."""
    tensors = []
    for index, (keys, values) in enumerate(layers):
        key_bits, value_bits = how.anchor_bits(index, len(layers))
        for role, tensor, bits in ((TensorRole.KEY, keys, key_bits), (TensorRole.VALUE, values, value_bits)):
            heads, tokens, head_dim = tensor.shape
            spec = TensorSpec(
                heads,
                tokens,
                head_dim,
                coding=how.coding,
                dtype=dtype,
                anchor_bits=bits,
                sink_tokens=how.sink_tokens,
            )
            tensors.append(ManifestTensor(index, role, spec))
    return Manifest(
        request_id,
        tensors,
        model=model,
        context_tokens=layers[0][0].shape[1],
        first_token=first_token,
        parts=how.parts,
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
        if not peer.finish(sender, timeout_s):
            raise Timeout(f"request {manifest.request_id} was not confirmed by {peer.name} within {timeout_s:g} s")
    except BaseException as e:
        if not peer.lost and not isinstance(e, Cancelled):
            peer.cancel(sender, reason_of(e))
        raise
