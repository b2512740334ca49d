"""The decode loop: arrivals in, tokens out, as a policy says.

One call of `decode` serves one request on one thread. It is a generator of events; whoever iterates it shows, sends or
measures them. The loop itself holds no policy and no clock but the request's deadline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lynx._core import (
    Coding,
    Manifest,
    PlaneReceiver,
    ProtocolError,
    Revision,
    Session,
    ShardedReceiver,
    TensorRole,
    Timeout,
)
from lynx.policies.base import Action, Policy, PolicyError, Tier

if TYPE_CHECKING:
    from lynx.engines.base import Engine

WAIT_SLICE_S = 0.05  # How often a waiting loop reports progress and asks the policy again.


@dataclass(frozen=True, slots=True)
class Started:
    """The manifest is here, and with it the token that prefill sampled from its exact cache."""

    first_token: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """More of the cache has come. Fractions of the bytes of each part, 0 to 1."""

    anchor: float
    residual: float


@dataclass(frozen=True, slots=True)
class Drafted:
    """A provisional token: it may be taken back."""

    token: int


@dataclass(frozen=True, slots=True)
class Committed:
    """Verified tokens: they stay. The first `accepted` of them were drafted before."""

    tokens: tuple[int, ...]
    accepted: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The last `count` drafted tokens are taken back."""

    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end. `verified` is false if the reference tier never came: then `tokens` are the provisional ones."""

    tokens: tuple[int, ...]
    verified: bool
    drafted: int
    accepted: int
    rollbacks: int


Event = Started | Arrived | Drafted | Committed | RolledBack | Done


def decode(
    receiver: PlaneReceiver | ShardedReceiver,
    engine: Engine,
    policy: Policy,
    *,
    max_tokens: int,
    end_tokens: Sequence[int] = (),
    timeout_s: float = 120.0,
) -> Iterator[Event]:
    """Decode up to `max_tokens` from the cache that `receiver` is receiving; stop after one of `end_tokens`.

    The reference tier, whose output the committed tokens are, is everything that the manifest announces: all 8 planes,
    or the raw cache. A manifest with anchors alone has no reference tier, and the request ends unverified.

    Raises `ProtocolError` if the manifest does not fit the engine, what ended the transfer (`PeerLost`, `Cancelled`,
    ...), `Timeout` once `timeout_s` have passed, and `PolicyError`. Events that were yielded before stay true.
    """
    manifest = receiver.manifest
    deadline = time.monotonic() + timeout_s
    check_manifest(manifest, engine)
    session = Session(manifest.first_token, max_tokens, list(end_tokens))
    cache = _Cache(receiver, engine)
    waits_for: int = getattr(policy, "waits_for", Tier.ANCHOR)
    if waits_for > Tier.ANCHOR and not cache.has_reference:
        raise PolicyError(f"{policy!r} waits for the residual; the manifest announces anchors alone")
    waits_for = min(waits_for, cache.last_part)
    engine.start(manifest.context_tokens, max_tokens + 1)
    yield Started(manifest.first_token)

    seen = None
    while not session.done:
        if time.monotonic() > deadline:
            raise Timeout(_late(receiver.revision, session, timeout_s))
        revision = receiver.revision
        arrived = _arrived(revision)
        session.observe(arrived.anchor, arrived.residual, receiver.ready(Tier.ANCHOR), cache.reference_ready())
        if arrived != seen:
            seen = arrived
            yield arrived

        snapshot = session.snapshot()
        action = policy.decide(snapshot)
        if action is Action.VERIFY:
            if not snapshot.residual_ready:
                raise PolicyError(f"{policy!r} asked to verify before the reference tier is there: {snapshot!r}")
            yield from _verify(session, engine, cache)
        elif action is Action.DRAFT and snapshot.can_draft:
            cache.bring_to(Tier.ANCHOR)
            token = engine.forward([session.last])[-1]
            session.draft(token)
            yield Drafted(token)
        elif action is Action.WAIT or action is Action.DRAFT:
            if cache.decode_next_layer(waits_for):
                continue
            if receiver.ready(manifest.parts - 1):
                # Nothing more will come, so waiting would never end.
                if cache.reference_ready():
                    raise PolicyError(f"{policy!r} waits, but all of the cache is there: {snapshot!r}")
                session.end_anchor_only()
            else:
                receiver.wait_newer(revision.number, WAIT_SLICE_S)
        else:
            raise PolicyError(f"{policy!r} answered {action!r}; an Action was due")

    tally = session.tally
    verified = cache.has_reference
    tokens = session.committed if verified else session.drafted
    yield Done(tuple(tokens), verified, tally.drafted, tally.accepted, tally.rollbacks)


def check_manifest(manifest: Manifest, engine: Engine) -> None:
    """Does what a stranger announces fit the model, tensor for tensor? Raises `ProtocolError`."""
    if manifest.first_token < 0:
        raise ProtocolError("the manifest brings no first token; decoding goes on from the one that prefill sampled")
    roles = (TensorRole.KEY, TensorRole.VALUE)
    theirs = {(tensor.layer, tensor.role): tensor.spec for tensor in manifest.tensors}
    ours = {(index, role): shape for index, shape in enumerate(engine.layers) for role in roles}
    if theirs.keys() != ours.keys():
        raise ProtocolError(
            f"the manifest has {len(theirs)} tensors, not K and V of the model's {len(engine.layers)} layers"
        )
    for (layer, _), spec in theirs.items():
        kv_heads, head_dim = engine.layers[layer]
        got, wanted = (spec.heads, spec.tokens, spec.head_dim), (kv_heads, manifest.context_tokens, head_dim)
        if got != wanted:
            raise ProtocolError(
                f"layer {layer} of the manifest is {got} (heads, tokens, head_dim), the model's {wanted}"
            )


def _verify(session: Session, engine: Engine, cache: _Cache) -> Iterator[Event]:
    # The drafts' own K/V rows came from the coarse cache: they go, and the pass writes them anew.
    engine.crop(len(session.drafted))
    cache.bring_to(cache.last_part)
    verdict = session.verify(engine.forward(session.pending))
    engine.crop(verdict.rows_to_drop)
    if verdict.rolled_back:
        yield RolledBack(verdict.rolled_back)
    yield Committed(tuple(verdict.committed), verdict.accepted)


def _arrived(revision: Revision) -> Arrived:
    def fraction(part: int) -> float:
        whole = revision.part_bytes[part]
        return revision.arrived_bytes[part] / whole if whole else 0.0

    return Arrived(fraction(Tier.ANCHOR), fraction(Tier.RESIDUAL))


def _late(revision: Revision, session: Session, timeout_s: float) -> str:
    arrived = _arrived(revision)
    return (
        f"the request was to end within {timeout_s:g} s; by then {arrived.anchor:.0%} of the anchor and "
        f"{arrived.residual:.0%} of the residual had arrived and {len(session.committed)} tokens were committed"
    )


class _Cache:
    """Which part each layer's prompt rows hold, and how they get to hold a finer one."""

    def __init__(self, receiver: PlaneReceiver | ShardedReceiver, engine: Engine) -> None:
        manifest = receiver.manifest
        self._receiver = receiver
        self._engine = engine
        self._held: list[int] = [-1] * len(engine.layers)
        self.last_part = manifest.parts - 1
        raw = all(tensor.spec.coding == Coding.RAW for tensor in manifest.tensors)
        self.has_reference = raw or manifest.parts > 1

    def reference_ready(self) -> bool:
        return self.has_reference and self._receiver.ready(self.last_part)

    def decode_next_layer(self, part: int) -> bool:
        """Decode one layer that has arrived since; whether there was one."""
        for layer, held in enumerate(self._held):
            if held < part and self._receiver.layer_ready(layer, part):
                self._decode(layer, part)
                return True
        return False

    def bring_to(self, part: int) -> None:
        """Decode every layer that holds less than `part`, which is complete."""
        for layer, held in enumerate(self._held):
            if held < part:
                self._decode(layer, part)

    def _decode(self, layer: int, part: int) -> None:
        keys, values = self._engine.prompt_rows(layer)
        self._receiver.decode(layer, TensorRole.KEY, part, keys)
        self._receiver.decode(layer, TensorRole.VALUE, part, values)
        self._held[layer] = part
