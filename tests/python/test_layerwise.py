"""Passes that begin before their cache is whole, rungs, sampling, stop strings: the text is blocking decoding's."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import lynx
from lynx.policies import Action, Blocking, Policy, PolicyError, Tier
from lynx.runtime import Committed, Done, Drafted, Event, OnLoss, RolledBack, StopStrings, decode, stream
from lynx.transfer import CacheCoding, make_manifest, send_cache

from .conftest import Pair, connected, text_of_events

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")

from lynx.engines.transformers import TransformersEngine  # noqa: E402

PROMPT = [(7 * i * i + 3 * i + 1) % 251 for i in range(120)]
TOKENS = 24
SLOW = 60_000  # bytes a second: the tiny cache takes about half a second, and drafts fit in between
HOT = lynx.Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=11)
# So coarse that drafts are often wrong.
COARSE = CacheCoding(key_anchor_bits=1, value_anchor_bits=1)
COARSE_EXACT = dataclasses.replace(COARSE, exact=True)


@pytest.fixture(scope="module")
def engine(tiny_model: Any) -> TransformersEngine:
    return TransformersEngine(tiny_model)


@dataclass
class Eager:
    """Begins to verify with the first layer, and drafts as long as it can, while it verifies too."""

    waits_for: Tier = Tier.ANCHOR
    drafted_while_verifying: int = 0

    def decide(self, snapshot: lynx.Snapshot) -> Action:
        if snapshot.verifying:
            self.drafted_while_verifying += snapshot.can_draft and snapshot.drafted < 12
            return Action.DRAFT if snapshot.drafted < 12 else Action.WAIT
        if snapshot.layers_ready or snapshot.reference_ready:
            return Action.VERIFY
        return Action.DRAFT if snapshot.drafted < 6 else Action.WAIT


@dataclass
class Climbing:
    """Refines at each part that is new, and verifies at the end."""

    waits_for: Tier = Tier.ANCHOR
    refined: int = 0

    def decide(self, snapshot: lynx.Snapshot) -> Action:
        if snapshot.reference_ready:
            return Action.VERIFY
        if snapshot.drafted and snapshot.part > snapshot.checked_part:
            self.refined += 1
            return Action.REFINE
        return Action.DRAFT if snapshot.drafted < 8 else Action.WAIT


@contextlib.contextmanager
def sending(
    pair: Pair, engine: TransformersEngine, coding: CacheCoding, rate: int, sampling: lynx.Sampling | None = None
) -> Iterator[lynx.PlaneReceiver]:
    cache = engine.prefill(PROMPT, sampler=lynx.Sampler(sampling) if sampling else None)
    manifest = make_manifest(
        engine.layers, len(PROMPT), coding, request_id=1, model="tiny", first_token=cache.first_token
    )
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(send_cache, pair.to_decode, manifest, cache.layers, bytes_per_second=rate)
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        try:
            yield receiver
            pair.to_prefill.finish(receiver)
        except BaseException:
            pair.to_prefill.cancel(receiver, "the test has had enough")
            raise
        finally:
            with contextlib.suppress(lynx.Error):
                sent.result(10)


def run(
    pair: Pair,
    engine: TransformersEngine,
    coding: CacheCoding,
    policy: Policy,
    rate: int = 0,
    sampling: lynx.Sampling | None = None,
    **more: Any,
) -> list[Event]:
    with sending(pair, engine, coding, rate, sampling) as receiver:
        loop = decode(
            receiver, engine, policy, max_tokens=TOKENS, timeout_s=30, sampling=sampling, prompt=PROMPT, **more
        )
        return list(loop)


def done(events: list[Event]) -> Done:
    assert isinstance(events[-1], Done)
    return events[-1]


@pytest.mark.parametrize("sampling", [None, HOT], ids=["greedy", "sampled"])
@pytest.mark.parametrize("waits_for", [Tier.ANCHOR, Tier.RESIDUAL])
def test_a_pass_that_waits_layer_by_layer_gives_the_text_of_blocking_decoding(
    pair: Pair, engine: TransformersEngine, sampling: lynx.Sampling | None, waits_for: Tier
) -> None:
    blocking = done(run(pair, engine, COARSE, Blocking(), sampling=sampling))
    policy = Eager(waits_for)
    events = run(pair, engine, COARSE, policy, SLOW, sampling)
    assert done(events).tokens == blocking.tokens
    assert (done(events).verified, done(events).committed) == (True, TOKENS)
    assert policy.drafted_while_verifying, "the pass began before the last layer was there"
    first = next(i for i, event in enumerate(events) if isinstance(event, Committed))
    assert sum(isinstance(event, Drafted) for event in events[:first]) > 6


def test_the_events_of_such_a_pass_tell_the_whole_story(pair: Pair, engine: TransformersEngine) -> None:
    for bits in (1, 4):
        coding = CacheCoding(key_anchor_bits=bits, value_anchor_bits=bits)
        events = run(pair, engine, coding, Eager(), SLOW)
        assert text_of_events(events) == done(events).tokens


@pytest.mark.parametrize("sampling", [None, HOT], ids=["greedy", "sampled"])
@pytest.mark.parametrize("coding", [COARSE_EXACT, dataclasses.replace(COARSE, rungs=7)], ids=["exact", "seven rungs"])
def test_rungs_correct_the_draft_and_the_reference_tier_has_the_last_word(
    pair: Pair, engine: TransformersEngine, coding: CacheCoding, sampling: lynx.Sampling | None
) -> None:
    blocking = done(run(pair, engine, coding, Blocking(), sampling=sampling))
    policy = Climbing()
    events = run(pair, engine, coding, policy, SLOW, sampling)
    assert done(events).tokens == blocking.tokens
    assert done(events).verified
    assert policy.refined >= 1
    first = next(i for i, event in enumerate(events) if isinstance(event, Committed))
    assert any(isinstance(event, RolledBack) for event in events[:first]), "one bit is too coarse to be right"


def test_the_exact_tier_gives_the_sampled_text_of_the_untouched_cache(pair: Pair, engine: TransformersEngine) -> None:
    for sampling in (None, HOT):
        raw = done(run(pair, engine, lynx.transfer.RAW, Blocking(), sampling=sampling))
        assert done(run(pair, engine, COARSE_EXACT, Eager(), SLOW, sampling)).tokens == raw.tokens


def test_another_seed_gives_another_text(pair: Pair, engine: TransformersEngine) -> None:
    texts = {
        done(run(pair, engine, COARSE, Blocking(), sampling=lynx.Sampling(temperature=1.0, seed=seed))).tokens
        for seed in range(3)
    }
    assert len(texts) == 3


def test_a_loop_that_is_left_in_the_middle_of_a_pass_frees_everything(pair: Pair, engine: TransformersEngine) -> None:
    def leave() -> None:
        policy = Eager()
        with sending(pair, engine, COARSE, 20_000) as receiver:
            loop = decode(receiver, engine, policy, max_tokens=TOKENS, timeout_s=30)
            next(loop for _ in loop if policy.drafted_while_verifying).close()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    gc.collect()
    for node in (pair.prefill, pair.decode):
        assert node.arena_free_bytes == node.arena_bytes
    assert done(run(pair, engine, COARSE, Eager())).verified, "the next request works"


def test_a_sender_that_goes_in_the_middle_of_a_pass_leaves_a_labelled_text(engine: TransformersEngine) -> None:
    policy, events = Eager(), list[Event]()
    with connected() as two, contextlib.suppress(lynx.PeerLost), sending(two, engine, COARSE, 20_000) as receiver:
        loop = decode(
            receiver, engine, policy, max_tokens=TOKENS, timeout_s=30, on_loss=OnLoss.KEEP_DRAFTING, prompt=PROMPT
        )
        for event in loop:
            events.append(event)
            if policy.drafted_while_verifying == 1:
                two.to_decode.close()
    end = done(events)
    assert isinstance(end.error, lynx.PeerLost)
    assert (end.verified, end.committed, end.tier) == (False, 0, Tier.ANCHOR)
    assert len(end.tokens) == TOKENS
    assert not any(isinstance(event, Committed) for event in events)


def test_a_policy_that_fails_in_the_middle_of_a_pass_ends_the_request(pair: Pair, engine: TransformersEngine) -> None:
    class Failing(Eager):
        def decide(self, snapshot: lynx.Snapshot) -> Action:
            if snapshot.verifying:
                raise ZeroDivisionError("a bug in a policy")
            return super().decide(snapshot)

    with pytest.raises(PolicyError, match="a bug in a policy") as caught:
        run(pair, engine, COARSE, Failing(), SLOW)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    del caught  # its traceback holds the request
    gc.collect()
    assert done(run(pair, engine, COARSE, Eager())).verified, "the next request works"


def test_other_work_of_the_thread_is_not_in_the_mode_of_a_pass_that_waits(
    pair: Pair, engine: TransformersEngine
) -> None:
    policy = Eager()
    with sending(pair, engine, COARSE, SLOW) as receiver:
        for _ in decode(receiver, engine, policy, max_tokens=TOKENS, timeout_s=30):
            assert not torch.is_inference_mode_enabled()
    assert policy.drafted_while_verifying, "events came while a pass waited"


def test_what_is_no_action_is_told_while_a_pass_waits_too(pair: Pair, engine: TransformersEngine) -> None:
    class Silent(Eager):
        def decide(self, snapshot: lynx.Snapshot) -> Action:
            return None if snapshot.verifying else super().decide(snapshot)  # type: ignore[return-value]

    with pytest.raises(PolicyError, match="answered None"):
        run(pair, engine, COARSE, Silent(), SLOW)


def text_of(tokens: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token % 26) for token in tokens)


@pytest.mark.parametrize("policy", [Blocking(), Eager(), Climbing()], ids=["blocking", "eager", "climbing"])
def test_a_stop_string_ends_the_text_where_blocking_decoding_would(
    pair: Pair, engine: TransformersEngine, policy: Policy
) -> None:
    whole = done(run(pair, engine, COARSE, Blocking())).tokens
    for end in (2, 9, TOKENS):
        stop = StopStrings(text_of, [text_of(whole[end - 2 : end]), "nowhere in the text"])
        expected = next(n for n in range(1, TOKENS + 1) if stop(whole[:n]))
        got = done(run(pair, engine, COARSE, policy, SLOW, ends=stop))
        assert got.tokens == whole[:expected]
        assert got.verified


def test_an_end_token_ends_the_text_wherever_it_comes(pair: Pair, engine: TransformersEngine) -> None:
    whole = done(run(pair, engine, COARSE, Blocking())).tokens
    for end in (0, 3, 10):
        expected = whole[: whole.index(whole[end]) + 1]
        for policy in (Blocking(), Eager(), Climbing()):
            got = done(run(pair, engine, COARSE, policy, SLOW, end_tokens=[whole[end]]))
            assert got.tokens == expected


def test_stop_strings_trim_text() -> None:
    stop = StopStrings(text_of, ["END", "\n\n"])
    assert stop.trim("one END two\n\n") == "one "
    assert stop.trim("one") == "one"
    assert not StopStrings(text_of, [])([1, 2, 3])
    with pytest.raises(ValueError, match="empty stop string"):
        StopStrings(text_of, [""])


def test_events_reach_asynchronous_code(pair: Pair, engine: TransformersEngine) -> None:
    async def collect(receiver: lynx.PlaneReceiver, stop_after: int | None = None) -> list[Event]:
        seen: list[Event] = []
        loop = decode(receiver, engine, Eager(), max_tokens=TOKENS, timeout_s=30)
        async with contextlib.aclosing(stream(loop)) as events:
            async for event in events:
                seen.append(event)
                if len(seen) == stop_after:
                    break
        return seen

    expected = done(run(pair, engine, COARSE, Blocking()))
    with sending(pair, engine, COARSE, SLOW) as receiver:
        assert done(asyncio.run(collect(receiver))).tokens == expected.tokens
    with sending(pair, engine, COARSE, SLOW) as receiver:
        assert len(asyncio.run(collect(receiver, 4))) == 4
        assert receiver.wait(receiver.manifest.parts - 1, 10), "leaving early leaves the transfer to its owner"


def test_errors_of_the_loop_reach_asynchronous_code(pair: Pair, engine: TransformersEngine) -> None:
    async def drain(receiver: lynx.PlaneReceiver) -> None:
        async for _ in stream(decode(receiver, engine, Blocking(), max_tokens=TOKENS, timeout_s=0.2)):
            pass

    with pytest.raises(lynx.Timeout), sending(pair, engine, COARSE, 5_000) as receiver:
        asyncio.run(drain(receiver))


def test_near_ties_are_counted(pair: Pair, engine: TransformersEngine) -> None:
    assert done(run(pair, engine, COARSE, Eager(), near_tie=float("inf"))).near_ties == TOKENS
    assert done(run(pair, engine, COARSE, Eager(), near_tie=0.0)).near_ties == 0


def test_a_policy_knows_how_long_a_step_takes_before_one_is_measured(pair: Pair, engine: TransformersEngine) -> None:
    seen: list[float] = []

    class Watching(Eager):
        def decide(self, snapshot: lynx.Snapshot) -> Action:
            seen.append(snapshot.draft_s)
            return super().decide(snapshot)

    run(pair, engine, COARSE, Watching(), SLOW, step_s=7.0)
    assert seen[0] == 7.0
    assert 0 < seen[-1] < 7.0


def test_what_is_no_policy_is_refused_at_once(pair: Pair, engine: TransformersEngine) -> None:
    with pytest.raises(PolicyError, match="no method decide"):
        run(pair, engine, COARSE, "layer-ready")  # type: ignore[arg-type]
