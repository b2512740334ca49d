"""One request on its way from the first token to the last: the steps that a policy asks for."""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from lynx._core import (
    Cancelled,
    CorruptData,
    Error,
    FabricError,
    PeerLost,
    PlaneReceiver,
    Progress,
    ProtocolError,
    Revision,
    Sampled,
    Session,
    ShardedReceiver,
    Snapshot,
    Timeout,
)
from lynx.policies.base import Action, Policy, PolicyError, Tier, name_of
from lynx.runtime.cache import ANCHOR, PromptCache
from lynx.runtime.events import Arrived, Committed, Done, Drafted, Event, RolledBack
from lynx.runtime.meters import ArrivalRate, Deadline, Mean, MonotonicClock
from lynx.runtime.passes import LayerwisePass

if TYPE_CHECKING:
    from lynx.engines.base import Engine

WAIT_SLICE_S = 0.05  # How often a waiting loop reports progress and asks the policy again.
TOKEN_SLICE_S = 0.01  # How long the wait for the first token keeps from decoding what has arrived meanwhile.
TRANSFER_ERRORS = (PeerLost, Cancelled, Timeout, CorruptData, ProtocolError, FabricError)

Receiver = PlaneReceiver | ShardedReceiver
Events = Generator[Event, None, None]


class OnLoss(enum.Enum):
    """What becomes of a request whose transfer fails before its reference tier is there."""

    RAISE = "raise"
    """The error is raised, whatever had arrived."""
    KEEP_DRAFTING = "keep drafting"
    """If the anchor is complete, the text is ended on what has arrived, and labelled: see `Done.tier`. If it is not,
    the error is raised."""


class Request:
    """One call of `decode`: what it has read, drafted and verified so far."""

    def __init__(
        self,
        receiver: Receiver,
        engine: Engine,
        policy: Policy,
        deadline: Deadline,
        clock: MonotonicClock,
        near_tie: float,
        step_s: float,
    ) -> None:
        self._receiver = receiver
        self._engine = engine
        self._policy = policy
        self._deadline = deadline
        self._clock = clock
        self._near_tie = near_tie
        self._near_ties = 0
        self._cache = PromptCache(receiver, engine)
        self._context_tokens: int = receiver.manifest.context_tokens
        self._draft_time, self._pass_time, self._rate = Mean(step_s), Mean(), ArrivalRate()
        self._seen: Arrived | None = None
        waits_for: int = getattr(policy, "waits_for", Tier.ANCHOR)
        if waits_for > Tier.ANCHOR and self._cache.reference < 0:
            raise PolicyError(f"{name_of(policy)} waits for the residual; the manifest announces anchors alone")
        self._waits_for = self._cache.last_part if waits_for > Tier.ANCHOR else ANCHOR
        self._session: Session

    def first_token(self) -> Generator[Event, None, int]:
        """Wait until prefill has sampled it; what arrives meanwhile is decoded."""
        while (token := self._receiver.first_token(0)) is None:
            yield from self._tell_arrivals("prefill had not sampled the first token")
            if not self._cache.decode_next_layer(self._waits_for):
                self._receiver.first_token(TOKEN_SLICE_S)
        return token

    def run(self, session: Session, on_loss: OnLoss) -> Events:
        """From the first token to the end."""
        self._session = session
        error: Error | None = None
        try:
            yield from self._until_done()
        except TRANSFER_ERRORS as e:
            if on_loss is OnLoss.RAISE or self._cache.usable_part() is None:
                raise
            error = e.with_traceback(None)  # which would hold the receiver and its slot as long as the result lives
        if error is not None:
            yield from self._draft_the_rest()
        yield self._done(error)

    def _until_done(self) -> Events:
        session, cache = self._session, self._cache
        while not session.done:
            revision = yield from self._observe()
            snapshot = session.snapshot()
            action = self._ask(snapshot)
            if action is Action.VERIFY:
                if snapshot.layers_ready == 0 and not snapshot.reference_ready:
                    raise PolicyError(
                        f"{name_of(self._policy)} asked to verify before the reference tier is there: {snapshot}"
                    )
                yield from self._verify()
            elif action is Action.REFINE and snapshot.drafted and snapshot.part > snapshot.checked_part:
                yield from self._refine(snapshot)
            elif action is Action.DRAFT and snapshot.can_draft:
                yield from self._draft()
            else:
                if cache.decode_next_layer(self._waits_for):
                    continue
                if snapshot.part == cache.last_part:
                    # Nothing more will come, so waiting would never end.
                    if snapshot.reference_ready:
                        raise PolicyError(
                            f"{name_of(self._policy)} waits, but all of the cache is there: "
                            f"it answered {action.name} to {snapshot}"
                        )
                    session.end_anchor_only()
                else:
                    self._receiver.wait_newer(revision.number, WAIT_SLICE_S)

    def _ask(self, snapshot: Snapshot) -> Action:
        try:
            action = self._policy.decide(snapshot)
        except Exception as e:
            raise PolicyError(f"{name_of(self._policy)} raised {type(e).__name__}: {e}") from e
        if not isinstance(action, Action):
            raise PolicyError(f"{name_of(self._policy)} answered {action!r}; an Action was due")
        return action

    def _tell_arrivals(self, state: str) -> Generator[Event, None, Revision]:
        """Look at what has arrived, and tell it if it is news. Raises `Timeout` at the request's end."""
        revision = self._receiver.revision
        arrived = _arrived(revision)
        if self._deadline.late:
            raise Timeout(
                f"the request was to end within {self._deadline.timeout_s:g} s; by then {arrived.anchor:.0%} of the "
                f"anchor and {arrived.residual:.0%} of what is behind it had arrived and {state}"
            )
        self._rate.see(self._clock(), revision)
        if arrived != self._seen:
            self._seen = arrived
            yield arrived
        return revision

    def _observe(self) -> Generator[Event, None, Revision]:
        """Tell the ledger and the policy what has arrived, and whoever iterates."""
        session, cache = self._session, self._cache
        revision = yield from self._tell_arrivals(f"{len(session.committed)} tokens were committed")
        part = cache.part()
        missing = [whole - arrived for whole, arrived in zip(revision.part_bytes, revision.arrived_bytes, strict=True)]
        arrived = _arrived(revision)
        session.observe(
            Progress(
                part=part,
                held=cache.held,
                reference=cache.reference,
                parts=cache.last_part + 1,
                layers=len(self._engine.layers),
                layers_ready=cache.layers_ready(),
                anchor_fraction=arrived.anchor,
                residual_fraction=arrived.residual,
                bytes_left=sum(missing[: cache.reference + 1]),
                part_bytes_left=sum(missing[: part + 2]),
                bytes_per_second=self._rate.bytes_per_second,
                draft_s=self._draft_time.seconds,
                pass_s=self._pass_time.seconds,
                elapsed_s=self._deadline.elapsed_s,
            )
        )
        return revision

    def _row(self, behind: int) -> int:
        """The row of the token that stands `behind` tokens before the last one."""
        return self._context_tokens + len(self._session.committed) + len(self._session.drafted) - behind

    def _draft(self) -> Events:
        """One provisional token, on whatever the cache holds."""
        self._cache.bring_to(ANCHOR)
        if self._waits_for > ANCHOR:
            self._cache.keep_up(self._waits_for)
        begin = self._clock()
        [sampled] = self._engine.forward([self._session.last], self._row(0))
        self._draft_time.add(self._clock() - begin)
        self._session.draft(sampled.token, sampled.margin)
        yield Drafted(sampled.token, sampled.margin)

    def _refine(self, snapshot: Snapshot) -> Events:
        """A pass over the drafts on the finest part that is complete."""
        part = snapshot.part
        self._cache.bring_to(part)
        sampled = self._pass()
        refinement = self._session.refine(part, [s.token for s in sampled], [s.margin for s in sampled])
        if refinement.rolled_back:
            yield RolledBack(refinement.rolled_back)
        if refinement.drafted is not None:
            yield Drafted(refinement.drafted, sampled[refinement.accepted].margin)

    def _verify(self) -> Events:
        """A pass on the reference tier, which begins while its last layers are still on the way."""
        session, cache = self._session, self._cache
        if session.snapshot().reference_ready:
            cache.bring_to(cache.reference)
            sampled = self._pass()
        else:
            sampled = yield from self._layerwise_pass()
            yield from self._observe()
        verdict = session.verify([s.token for s in sampled])
        # What stands at i of the committed tokens is the pass's own choice, whether it was drafted or not.
        self._near_ties += sum(s.margin < self._near_tie for s in sampled[: len(verdict.committed)])
        if verdict.rolled_back:
            yield RolledBack(verdict.rolled_back)
        yield Committed(tuple(verdict.committed), verdict.accepted)

    def _pass(self) -> Sequence[Sampled]:
        pending = self._session.pending
        begin = self._clock()
        sampled = self._engine.forward(pending, self._row(len(pending) - 1))
        if len(pending) > 1:
            self._pass_time.add(self._clock() - begin)
        return sampled

    def _layerwise_pass(self) -> Generator[Event, None, Sequence[Sampled]]:
        """`F_l = max(F_(l-1), R_l) + c_l`: no layer waits for more than its own bytes and the layer before it."""
        session, cache, clock = self._session, self._cache, self._clock
        session.begin_verify()
        pending = session.pending
        computing = 0.0
        with LayerwisePass(self._engine, pending, self._row(len(pending) - 1)) as layerwise:
            begin = clock()
            while (layer := layerwise.next_layer()) is not None:
                computing += clock() - begin
                yield from self._wait_for(layer)
                begin = clock()
                cache.bring_layer_to(layer, cache.reference)
            computing += clock() - begin
        if len(pending) > 1:
            self._pass_time.add(computing)
        return layerwise.sampled

    def _wait_for(self, layer: int) -> Events:
        """Until the reference tier of `layer` is there; the policy may draft on meanwhile."""
        while not self._cache.layer_ready(layer):
            revision = yield from self._observe()
            snapshot = self._session.snapshot()
            if self._ask(snapshot) is Action.DRAFT and snapshot.can_draft:
                yield from self._draft()
            else:
                self._receiver.wait_newer(revision.number, WAIT_SLICE_S)

    def _draft_the_rest(self) -> Events:
        """The reference tier will not come: end the text on what is there, as long as there is time."""
        session, cache = self._session, self._cache
        # Drafts that are there were made on the anchor, and what follows them is no better.
        cache.bring_to(ANCHOR if session.drafted else cache.usable_part() or ANCHOR)
        session.observe(Progress(part=ANCHOR, held=cache.held))
        self._waits_for = ANCHOR
        while not self._deadline.late and session.snapshot().can_draft:
            yield from self._draft()
        session.end_anchor_only()

    def _done(self, error: Error | None) -> Done:
        tally, committed, drafted = self._session.tally, self._session.committed, self._session.drafted
        return Done(
            tokens=tuple(committed + drafted),
            committed=len(committed),
            verified=self._cache.reference >= 0 and error is None,
            tier=self._cache.tier(),
            drafted=tally.drafted,
            accepted=tally.accepted,
            rollbacks=tally.rollbacks,
            error=error,
            near_ties=self._near_ties,
        )


def _arrived(revision: Revision) -> Arrived:
    def fraction(parts: slice) -> float:
        whole = sum(revision.part_bytes[parts])
        return sum(revision.arrived_bytes[parts]) / whole if whole else 0.0

    return Arrived(fraction(slice(0, 1)), fraction(slice(1, None)))
