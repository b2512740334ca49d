"""The decode loop over a real transfer, on a tiny model."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import lynx
from lynx.policies import Action, AnchorFirst, Blocking, Policy, PolicyError, Tier
from lynx.runtime import Arrived, Committed, Done, Drafted, Event, Started, decode
from lynx.transfer import RAW, CacheCoding, Layers, make_manifest, send_cache

from .conftest import Pair, connected, text_of_events

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")

from lynx.engines.transformers import TransformersEngine  # noqa: E402

PROMPT = [(7 * i * i + 3 * i + 1) % 251 for i in range(120)]
TOKENS = 24
INT8 = CacheCoding()
SLOW = 60_000  # bytes a second: the tiny cache takes about half a second, and drafts fit in between


@pytest.fixture(scope="module")
def engine(tiny_model: Any) -> TransformersEngine:
    return TransformersEngine(tiny_model)


def manifest_of(layers: Layers, coding: CacheCoding = INT8, first_token: int = 1) -> lynx.Manifest:
    shapes = [(keys.shape[0], keys.shape[2]) for keys, _ in layers]
    return make_manifest(shapes, layers[0][0].shape[1], coding, request_id=1, model="tiny", first_token=first_token)


def run(
    pair: Pair, engine: TransformersEngine, coding: CacheCoding, policy: Policy, rate: int = SLOW, tokens: int = TOKENS
) -> list[Event]:
    """One request: prefill, send and decode in this process, over the wire in between."""
    prefilled = engine.prefill(PROMPT)
    manifest = manifest_of(prefilled.layers, coding, prefilled.first_token)
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send_cache, pair.to_decode, manifest, prefilled.layers, bytes_per_second=rate)
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        try:
            events = list(decode(receiver, engine, policy, max_tokens=tokens, timeout_s=30))
        except BaseException as e:
            pair.to_prefill.cancel(receiver, str(e))
            with pytest.raises(lynx.Cancelled):
                sending.result(10)
            raise
        pair.to_prefill.finish(receiver)
        sending.result(10)
    return events


def done(events: list[Event]) -> Done:
    assert isinstance(events[-1], Done)
    return events[-1]


def test_lynx_commits_the_very_tokens_of_blocking_int8(pair: Pair, engine: TransformersEngine) -> None:
    int8 = run(pair, engine, CacheCoding(), Blocking())
    for bits in (1, 2, 4):  # the coarser the anchor, the more is rolled back; the output stays
        coding = CacheCoding(key_anchor_bits=bits, value_anchor_bits=bits)
        lynx_events = run(pair, engine, coding, AnchorFirst())
        assert done(lynx_events).tokens == done(int8).tokens
        assert (done(lynx_events).verified, done(lynx_events).tier) == (True, Tier.RESIDUAL)
        assert done(lynx_events).drafted > 0
    assert len(done(int8).tokens) == TOKENS


def test_events_tell_the_whole_story(pair: Pair, engine: TransformersEngine) -> None:
    coding = CacheCoding(key_anchor_bits=1, value_anchor_bits=1)
    events = run(pair, engine, coding, AnchorFirst())
    assert isinstance(events[0], Started)
    assert text_of_events(events) == done(events).tokens
    arrivals = [event for event in events if isinstance(event, Arrived)]
    assert [a.anchor for a in arrivals] == sorted(a.anchor for a in arrivals)
    assert (arrivals[-1].anchor, arrivals[-1].residual) == (1, 1)
    assert done(events).rollbacks > 0, "one bit is too coarse for this test to mean anything otherwise"


def test_drafts_come_before_the_residual_is_there(pair: Pair, engine: TransformersEngine) -> None:
    events = run(pair, engine, CacheCoding(), AnchorFirst())
    first_draft = next(i for i, event in enumerate(events) if isinstance(event, Drafted))
    before = [event for event in events[:first_draft] if isinstance(event, Arrived)]
    assert before[-1].residual < 1


def test_the_raw_coding_gives_the_tokens_of_the_untouched_cache(pair: Pair, engine: TransformersEngine) -> None:
    events = run(pair, engine, RAW, Blocking(), rate=0)
    prefilled = engine.prefill(PROMPT)
    engine.start(len(PROMPT), TOKENS + 1)
    for layer, rows in enumerate(prefilled.layers):
        for target, source in zip(engine.prompt_rows(layer), rows, strict=True):
            target.copy_(source)
    token, tokens = prefilled.first_token, []
    for row in range(len(PROMPT), len(PROMPT) + TOKENS):
        token = engine.forward([token], row)[0].token
        tokens.append(token)
    assert list(done(events).tokens) == tokens


def test_the_exact_tier_gives_the_tokens_of_the_untouched_cache(pair: Pair, engine: TransformersEngine) -> None:
    raw = run(pair, engine, RAW, Blocking(), rate=0)
    for policy in (Blocking(), AnchorFirst()):
        # One bit is so coarse that a draft which nothing checked would show.
        events = run(pair, engine, CacheCoding(key_anchor_bits=1, value_anchor_bits=1, exact=True), policy)
        assert done(events).tokens == done(raw).tokens
        assert (done(events).verified, done(events).tier) == (True, Tier.EXACT)
    assert done(raw).tier is Tier.EXACT
    assert done(events).drafted > 0


def test_anchors_alone_are_never_called_verified(pair: Pair, engine: TransformersEngine) -> None:
    for policy in (Blocking(Tier.ANCHOR), AnchorFirst(draft_cap=5)):
        events = run(pair, engine, CacheCoding(parts=1), policy, rate=0)
        assert not done(events).verified
        assert (done(events).tier, done(events).committed, done(events).error) == (Tier.ANCHOR, 0, None)
        assert not any(isinstance(event, Committed) for event in events)
    assert len(done(events).tokens) == 5


def test_both_arenas_are_whole_again_afterwards(pair: Pair, engine: TransformersEngine) -> None:
    for _ in range(3):
        run(pair, engine, CacheCoding(), AnchorFirst(), rate=0)
    for node in (pair.prefill, pair.decode):
        assert node.arena_free_bytes == node.arena_bytes


@dataclass(frozen=True)
class Always:
    """Says the same whatever it sees."""

    action: Any

    def decide(self, snapshot: lynx.Snapshot) -> Action:
        return self.action  # type: ignore[no-any-return]


def misbehaving() -> list[Any]:
    def fail(_: lynx.Snapshot) -> Action:
        raise ZeroDivisionError("a bug in a policy")

    broken = type("Broken", (), {"decide": staticmethod(fail)})()
    return [
        pytest.param(Always(Action.WAIT), PolicyError, "waits, but all", id="waits for ever"),
        pytest.param(Always(Action.VERIFY), PolicyError, "before the reference tier", id="verifies too early"),
        pytest.param(Always("go"), PolicyError, "'go'", id="answers nonsense"),
        pytest.param(broken, PolicyError, "raised ZeroDivisionError: a bug in a policy", id="raises"),
    ]


@pytest.mark.parametrize(("policy", "error", "told"), misbehaving())
def test_a_policy_that_misbehaves_ends_its_request_alone(
    pair: Pair, engine: TransformersEngine, policy: Any, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        run(pair, engine, CacheCoding(), policy)
    gc.collect()  # the exceptions' tracebacks hold the sender and the receiver
    for node in (pair.prefill, pair.decode):
        assert node.arena_free_bytes == node.arena_bytes
    assert done(run(pair, engine, CacheCoding(), AnchorFirst(), rate=0)).verified, "the next request works"


def test_a_manifest_that_does_not_fit_the_model_is_refused(pair: Pair, engine: TransformersEngine) -> None:
    layers = engine.prefill(PROMPT).layers
    narrow = [(keys[:1], values[:1]) for keys, values in layers]
    for wrong, told in ((layers * 2, "4 tensors|8 tensors"), (layers[:1], "2 tensors"), (narrow, r"\(1, 120, 32\)")):
        manifest = manifest_of(wrong)
        receiver = lynx.PlaneReceiver(pair.decode, manifest)
        with pytest.raises(lynx.ProtocolError, match=told):
            next(decode(receiver, engine, AnchorFirst(), max_tokens=4))


def test_a_policy_that_waits_for_a_tier_that_is_not_sent_is_refused(pair: Pair, engine: TransformersEngine) -> None:
    with pytest.raises(PolicyError, match="anchors alone"):
        run(pair, engine, CacheCoding(parts=1), Blocking(), rate=0)


def test_a_transfer_that_does_not_come_runs_into_its_deadline(pair: Pair, engine: TransformersEngine) -> None:
    prefilled = engine.prefill(PROMPT)
    manifest = manifest_of(prefilled.layers)
    with ThreadPoolExecutor() as pool:
        offering = pool.submit(pair.to_decode.offer, manifest)
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        sender = offering.result(10)
        sender.put(0, lynx.TensorRole.KEY, prefilled.layers[0][0])
        with pytest.raises(lynx.Timeout, match=r"within 0\.3 s.*0 tokens"):
            list(decode(receiver, engine, Blocking(), max_tokens=4, timeout_s=0.3))


def test_a_peer_that_goes_in_mid_stream_ends_the_request(engine: TransformersEngine) -> None:
    prefilled = engine.prefill(PROMPT)
    manifest = manifest_of(prefilled.layers)
    with connected() as two, ThreadPoolExecutor() as pool:
        offering = pool.submit(two.to_decode.offer, manifest)
        receiver = two.to_prefill.accept_offer(10)
        assert receiver is not None
        sender = offering.result(10)
        sender.put(0, lynx.TensorRole.KEY, prefilled.layers[0][0])
        loop = decode(receiver, engine, Blocking(), max_tokens=4, timeout_s=30)
        assert isinstance(next(loop), Started)
        two.to_decode.close()
        with pytest.raises(lynx.PeerLost):
            list(loop)
