"""The decode loop: arrivals in, tokens out, as a policy says.

One call of `decode` serves one request on one thread. It is a generator of events; whoever iterates it shows, sends or
measures them. The loop itself holds no policy and no clock but the request's deadline.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lynx._core import (
    Cancelled,
    Coding,
    CorruptData,
    Error,
    FabricError,
    Manifest,
    ManifestTensor,
    PeerLost,
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
TOKEN_SLICE_S = 0.01  # How long the wait for the first token keeps from decoding what has arrived meanwhile.
TRANSFER_ERRORS = (PeerLost, Cancelled, Timeout, CorruptData, ProtocolError, FabricError)


class OnLoss(enum.Enum):
    """What becomes of a request whose transfer fails before its reference tier is there."""

    RAISE = "raise"
    """The error is raised, whatever had arrived."""
    KEEP_DRAFTING = "keep drafting"
    """If the anchor is complete, the text is ended on what has arrived, and labelled: see `Done.tier`. If it is not,
    the error is raised."""


@dataclass(frozen=True, slots=True)
class Started:
    """The token is here that prefill sampled from its exact cache."""

    first_token: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """More of the cache has come. Fractions, 0 to 1, of the anchor's bytes and of all those behind it."""

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
    """The end. `tokens` is the whole text without the first token, the first `committed` of it verified.

    `verified` says that all of it is, on the reference tier. If it is false, then the tokens behind the committed ones
    were drafted on `tier` and nothing has checked them: because no finer one was announced, or because of `error`,
    which ended the transfer.
    """

    tokens: tuple[int, ...]
    committed: int
    verified: bool
    tier: Tier
    drafted: int
    accepted: int
    rollbacks: int
    error: Error | None = None


Event = Started | Arrived | Drafted | Committed | RolledBack | Done


def decode(
    receiver: PlaneReceiver | ShardedReceiver,
    engine: Engine,
    policy: Policy,
    *,
    max_tokens: int,
    end_tokens: Sequence[int] = (),
    timeout_s: float = 120.0,
    on_loss: OnLoss = OnLoss.RAISE,
) -> Iterator[Event]:
    """Decode up to `max_tokens` from the cache that `receiver` is receiving; stop after one of `end_tokens`.

    The reference tier, whose output the committed tokens are, is everything that the manifest announces: all 8 planes,
    with the exact tier the bf16 cache bit for bit, or the raw cache. A manifest with anchors alone has no reference
    tier, and the request ends unverified.

    Raises `ProtocolError` if the manifest does not fit the engine, what ended the transfer (`PeerLost`, `Cancelled`,
    ...) unless `on_loss` says otherwise, `Timeout` once `timeout_s` have passed, and `PolicyError`. Events that were
    yielded before stay true.
    """
    manifest = receiver.manifest
    clock = _Clock(timeout_s)
    check_manifest(manifest, engine)
    cache = _Cache(receiver, engine)
    waits_for: int = getattr(policy, "waits_for", Tier.ANCHOR)
    if waits_for > Tier.ANCHOR and cache.reference is None:
        raise PolicyError(f"{policy!r} waits for the residual; the manifest announces anchors alone")
    if waits_for > Tier.ANCHOR:
        waits_for = cache.last_part
    engine.start(manifest.context_tokens, max_tokens + 1)
    first_token = yield from _first_token(receiver, cache, waits_for, clock)
    yield Started(first_token)

    session = Session(first_token, max_tokens, list(end_tokens))
    error: Error | None = None
    try:
        yield from _until_done(receiver, session, engine, policy, cache, waits_for, clock)
    except TRANSFER_ERRORS as e:
        if on_loss is OnLoss.RAISE or cache.usable_part() is None:
            raise
        error = e.with_traceback(None)  # which would hold the receiver and its slot as long as the result lives
    if error is not None:
        yield from _draft_the_rest(session, engine, cache, clock)
    yield _done(session, cache, error)


def _first_token(
    receiver: PlaneReceiver | ShardedReceiver, cache: _Cache, waits_for: int, clock: _Clock
) -> Generator[Event, None, int]:
    """Wait until prefill has sampled it; what arrives meanwhile is decoded."""
    seen = None
    while (token := receiver.first_token(0)) is None:
        revision = receiver.revision
        if clock.late:
            raise Timeout(clock.told(revision, "prefill had not sampled the first token"))
        arrived = _arrived(revision)
        if arrived != seen:
            seen = arrived
            yield arrived
        if not cache.decode_next_layer(waits_for):
            receiver.first_token(TOKEN_SLICE_S)
    return token


def _until_done(
    receiver: PlaneReceiver | ShardedReceiver,
    session: Session,
    engine: Engine,
    policy: Policy,
    cache: _Cache,
    waits_for: int,
    clock: _Clock,
) -> Iterator[Event]:
    seen = None
    while not session.done:
        revision = receiver.revision
        if clock.late:
            raise Timeout(clock.told(revision, f"{len(session.committed)} tokens were committed"))
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
            yield _draft(session, engine)
        elif action is Action.WAIT or action is Action.DRAFT:
            if cache.decode_next_layer(waits_for):
                continue
            if receiver.ready(cache.last_part):
                # Nothing more will come, so waiting would never end.
                if cache.reference_ready():
                    raise PolicyError(f"{policy!r} waits, but all of the cache is there: {snapshot!r}")
                session.end_anchor_only()
            else:
                receiver.wait_newer(revision.number, WAIT_SLICE_S)
        else:
            raise PolicyError(f"{policy!r} answered {action!r}; an Action was due")


def _draft(session: Session, engine: Engine) -> Drafted:
    token = engine.forward([session.last])[-1]
    session.draft(token)
    return Drafted(token)


def _verify(session: Session, engine: Engine, cache: _Cache) -> Iterator[Event]:
    cache.bring_to(cache.last_part)
    # The drafts' own K/V rows came from the coarse cache: they go, and the pass writes them anew.
    engine.crop(len(session.drafted))
    verdict = session.verify(engine.forward(session.pending))
    engine.crop(verdict.rows_to_drop)
    if verdict.rolled_back:
        yield RolledBack(verdict.rolled_back)
    yield Committed(tuple(verdict.committed), verdict.accepted)


def _draft_the_rest(session: Session, engine: Engine, cache: _Cache, clock: _Clock) -> Iterator[Event]:
    """The reference tier will not come: end the text on what is there, as long as there is time."""
    # Drafts that are there were made on the anchor, and what follows them is no better.
    cache.bring_to(Tier.ANCHOR if session.drafted else cache.usable_part() or 0)
    session.observe(1, 0, anchor_ready=True, residual_ready=False)
    while not clock.late and session.snapshot().can_draft:
        yield _draft(session, engine)
    session.end_anchor_only()


def _done(session: Session, cache: _Cache, error: Error | None) -> Done:
    tally, committed, drafted = session.tally, session.committed, session.drafted
    verified = cache.reference is not None and error is None
    return Done(
        tokens=tuple(committed + drafted),
        committed=len(committed),
        verified=verified,
        tier=cache.tier(),
        drafted=tally.drafted,
        accepted=tally.accepted,
        rollbacks=tally.rollbacks,
        error=error,
    )


def check_manifest(manifest: Manifest, engine: Engine) -> None:
    """Does what a stranger announces fit the model, tensor for tensor? Raises `ProtocolError`."""
    roles = (TensorRole.KEY, TensorRole.VALUE)
    theirs: dict[tuple[int, TensorRole], list[ManifestTensor]] = {}
    for tensor in manifest.tensors:
        theirs.setdefault((tensor.layer, tensor.role), []).append(tensor)
    ours = {(index, role): shape for index, shape in enumerate(engine.layers) for role in roles}
    if theirs.keys() != ours.keys():
        raise ProtocolError(
            f"the manifest has {len(theirs)} tensors, not K and V of the model's {len(engine.layers)} layers"
        )
    for (layer, _), pieces in theirs.items():
        # A manifest's pieces leave no gap between them: where they begin and end says what they cover.
        begin = (min(p.first_head for p in pieces), min(p.first_token for p in pieces))
        heads = max(p.first_head + p.spec.heads for p in pieces)
        tokens = max(p.first_token + p.spec.tokens for p in pieces)
        kv_heads, head_dim = engine.layers[layer]
        got, wanted = (heads, tokens, pieces[0].spec.head_dim), (kv_heads, manifest.context_tokens, head_dim)
        if got != wanted or begin != (0, 0):
            raise ProtocolError(
                f"layer {layer} of the manifest is {got} (heads, tokens, head_dim), from head and token {begin} on; "
                f"the model's is {wanted}"
            )


def _arrived(revision: Revision) -> Arrived:
    def fraction(parts: slice) -> float:
        whole = sum(revision.part_bytes[parts])
        return sum(revision.arrived_bytes[parts]) / whole if whole else 0.0

    return Arrived(fraction(slice(0, 1)), fraction(slice(1, None)))


class _Clock:
    """The request's deadline."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s

    @property
    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def told(self, revision: Revision, state: str) -> str:
        arrived = _arrived(revision)
        return (
            f"the request was to end within {self._timeout_s:g} s; by then {arrived.anchor:.0%} of the anchor and "
            f"{arrived.residual:.0%} of what is behind it had arrived and {state}"
        )


class _Cache:
    """Which part each layer's prompt rows hold, and how they get to hold a finer one."""

    def __init__(self, receiver: PlaneReceiver | ShardedReceiver, engine: Engine) -> None:
        self._receiver = receiver
        self._engine = engine
        self._held: list[int] = [-1] * len(engine.layers)
        self.last_part = receiver.manifest.parts - 1
        self._usable = self.last_part
        self.reference = _reference_tier(receiver.manifest)

    def reference_ready(self) -> bool:
        return self.reference is not None and self._receiver.ready(self.last_part)

    def usable_part(self) -> int | None:
        """The finest that every layer can be brought to, whatever has become of the transfer."""
        part = self._receiver.tier
        return None if part is None or self._usable < 0 else min(part, self._usable)

    def tier(self) -> Tier:
        """What the layers hold, all of them."""
        part = min(self._held)
        if self.reference is not None and part == self.last_part:
            return self.reference
        return Tier.ANCHOR if part < self._receiver.manifest.residual_part else Tier.RESIDUAL

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
        self._held[layer] = -1  # a decode that fails leaves the rows half written
        try:
            self._receiver.decode(layer, TensorRole.KEY, part, keys)
            self._receiver.decode(layer, TensorRole.VALUE, part, values)
        except CorruptData:
            self._usable = min(self._usable, part - 1)
            raise
        self._held[layer] = part


def _reference_tier(manifest: Manifest) -> Tier | None:
    """What the last part completes; None if that is the anchor, which verifies nothing."""
    specs = [tensor.spec for tensor in manifest.tensors]
    if all(spec.coding == Coding.RAW or (spec.exact and manifest.parts > manifest.exact_part) for spec in specs):
        return Tier.EXACT
    return Tier.RESIDUAL if manifest.parts > manifest.residual_part else None
