"""Requests whose anchor is there and whose finer tiers never come: labelled, and never taken for verified."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lynx
from lynx.commands.request import TransferRequest
from lynx.policies import AnchorFirst, Blocking, Policy, Tier
from lynx.runtime import Arrived, Committed, Done, Drafted, Event, OnLoss, decode
from lynx.transfer import CacheCoding, make_manifest, send_cache

from .conftest import Pair

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")

from lynx.engines.transformers import TransformersEngine  # noqa: E402

PROMPT = [(7 * i * i + 3 * i + 1) % 251 for i in range(120)]
TOKENS = 24
KEEP = OnLoss.KEEP_DRAFTING
# So coarse that a draft differs from what a finer tier gives.
COARSE = CacheCoding(key_anchor_bits=1, value_anchor_bits=1)
COARSE_EXACT = CacheCoding(key_anchor_bits=1, value_anchor_bits=1, exact=True)


@pytest.fixture(scope="module")
def engine(tiny_model: Any) -> TransformersEngine:
    return TransformersEngine(tiny_model)


def done(events: list[Event]) -> Done:
    assert isinstance(events[-1], Done)
    return events[-1]


@contextlib.contextmanager
def sending(pair: Pair, engine: TransformersEngine, coding: CacheCoding, rate: int) -> Iterator[lynx.PlaneReceiver]:
    """The receiver of a transfer that a thread sends, so slowly that a test can step in between anchor and residual."""
    cache = engine.prefill(PROMPT)
    manifest = make_manifest(
        engine.layers, len(PROMPT), coding, request_id=1, model="tiny", first_token=cache.first_token
    )
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(send_cache, pair.to_decode, manifest, cache.layers, bytes_per_second=rate)
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        yield receiver
        if not pair.to_prefill.lost:
            pair.to_prefill.finish(receiver)
        with contextlib.suppress(lynx.Error):
            sent.result(10)


def tokens_of(pair: Pair, engine: TransformersEngine, coding: CacheCoding, policy: Policy) -> tuple[int, ...]:
    with sending(pair, engine, coding, 0) as receiver:
        return done(list(decode(receiver, engine, policy, max_tokens=TOKENS, timeout_s=60))).tokens


@pytest.mark.parametrize("policy", [AnchorFirst(draft_cap=4), Blocking()])
def test_a_text_goes_on_on_the_anchor_and_says_so(pair: Pair, engine: TransformersEngine, policy: Policy) -> None:
    on_anchor = tokens_of(pair, engine, CacheCoding(parts=1), Blocking(Tier.ANCHOR))
    with sending(pair, engine, CacheCoding(), 20_000) as receiver:
        loop = decode(receiver, engine, policy, max_tokens=TOKENS, timeout_s=60, on_loss=KEEP)
        events: list[Event] = []
        for event in loop:
            events.append(event)
            if isinstance(event, Arrived) and event.anchor == 1 and not pair.to_decode.lost:
                pair.to_decode.close()
    end = done(events)
    assert (end.verified, end.committed, end.tier) == (False, 0, Tier.ANCHOR)
    assert isinstance(end.error, lynx.PeerLost)
    assert end.tokens == on_anchor
    assert not any(isinstance(event, Committed) for event in events)
    assert tuple(event.token for event in events if isinstance(event, Drafted)) == end.tokens


def test_without_an_anchor_the_error_is_raised_as_ever(pair: Pair, engine: TransformersEngine) -> None:
    with sending(pair, engine, CacheCoding(), 5_000) as receiver:
        loop = decode(receiver, engine, AnchorFirst(), max_tokens=TOKENS, timeout_s=60, on_loss=KEEP)
        next(loop)
        pair.to_decode.close()
        with pytest.raises(lynx.PeerLost):
            list(loop)


def test_by_default_the_error_is_raised(pair: Pair, engine: TransformersEngine) -> None:
    with sending(pair, engine, CacheCoding(), 20_000) as receiver:
        loop = decode(receiver, engine, AnchorFirst(draft_cap=4), max_tokens=TOKENS, timeout_s=60)
        assert receiver.wait(Tier.ANCHOR, 20)
        pair.to_decode.close()
        with pytest.raises(lynx.PeerLost):
            list(loop)


def test_the_deadline_leaves_what_was_drafted_until_then(pair: Pair, engine: TransformersEngine) -> None:
    with sending(pair, engine, CacheCoding(), 20_000) as receiver:
        assert receiver.wait(Tier.ANCHOR, 20)
        policy = AnchorFirst(draft_cap=3)
        end = done(list(decode(receiver, engine, policy, max_tokens=TOKENS, timeout_s=0.5, on_loss=KEEP)))
    assert isinstance(end.error, lynx.Timeout)
    assert (end.verified, end.committed, len(end.tokens)) == (False, 0, 3)


def test_committed_tokens_stay_committed(pair: Pair, engine: TransformersEngine) -> None:
    whole = tokens_of(pair, engine, CacheCoding(), Blocking())
    with sending(pair, engine, CacheCoding(), 0) as receiver:
        assert receiver.wait(Tier.RESIDUAL, 20)
        loop = decode(receiver, engine, Blocking(), max_tokens=TOKENS, timeout_s=1.0, on_loss=KEEP)
        events: list[Event] = []
        for event in loop:
            events.append(event)
            if sum(isinstance(e, Committed) for e in events) == 5:
                time.sleep(1.1)
    end = done(events)
    assert isinstance(end.error, lynx.Timeout)
    assert not end.verified, "the text is not whole"
    assert end.committed >= 5
    assert end.tokens[: end.committed] == whole[: end.committed]
    assert end.tier is Tier.RESIDUAL


class Damaged:
    """A receiver whose exact tier does not hold together from some layer on."""

    def __init__(self, receiver: lynx.PlaneReceiver, from_layer: int) -> None:
        self._receiver = receiver
        self._from_layer = from_layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._receiver, name)

    def decode(self, layer: int, role: lynx.TensorRole, part: int, out: Any) -> None:
        if part == Tier.EXACT and layer >= self._from_layer:
            out.fill_(1e9)
            raise lynx.CorruptData("bytes that do not hold together")
        self._receiver.decode(layer, role, part, out)


def test_a_damaged_exact_tier_leaves_the_int8_cache(pair: Pair, engine: TransformersEngine) -> None:
    int8 = tokens_of(pair, engine, COARSE, Blocking())
    with sending(pair, engine, COARSE_EXACT, 0) as receiver:
        assert receiver.wait(Tier.EXACT, 20)
        damaged: Any = Damaged(receiver, from_layer=0)
        end = done(list(decode(damaged, engine, Blocking(), max_tokens=TOKENS, timeout_s=60, on_loss=KEEP)))
    assert isinstance(end.error, lynx.CorruptData)
    assert (end.tier, end.verified, end.committed) == (Tier.RESIDUAL, False, 0)
    assert end.tokens == int8


def test_what_follows_drafts_on_the_anchor_is_no_better_than_they_are(pair: Pair, engine: TransformersEngine) -> None:
    with sending(pair, engine, COARSE_EXACT, 20_000) as receiver:
        damaged: Any = Damaged(receiver, from_layer=1)
        policy = AnchorFirst(draft_cap=2)
        end = done(list(decode(damaged, engine, policy, max_tokens=TOKENS, timeout_s=60, on_loss=KEEP)))
    assert isinstance(end.error, lynx.CorruptData)
    assert (end.tier, end.verified, end.committed, len(end.tokens)) == (Tier.ANCHOR, False, 0, TOKENS)


@pytest.mark.processes
@pytest.mark.parametrize("live", [(), ("--live",)])
def test_a_prefill_process_that_is_killed_after_the_anchor_leaves_a_labelled_text(
    tiny_model_dir: Path, engine: TransformersEngine, live: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "lynx", "prefill", "--model", str(tiny_model_dir), "--context", "200", *live]
    command += ["--listen", "127.0.0.1:0", "--bandwidth", "200kbit"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as prefill:
        try:
            assert prefill.stdout is not None
            line = next(line for line in prefill.stdout if "listening on" in line)
            port = int(line.split("listening on 127.0.0.1:")[1].split(";")[0])
            peer = lynx.Peer.connect(lynx.Node(), "127.0.0.1", port)
            assert peer.receive_message(30) is not None
            peer.send_message(TransferRequest(1, CacheCoding(), lynx.Sampling()).serialize())
            receiver = peer.accept_offer(30)
            assert receiver is not None
            events: list[Event] = []
            loop = decode(receiver, engine, AnchorFirst(), max_tokens=TOKENS, timeout_s=60, on_loss=KEEP)
            for event in loop:
                events.append(event)
                if isinstance(event, Arrived) and event.anchor == 1:
                    prefill.kill()
        finally:
            prefill.kill()
    end = done(events)
    assert isinstance(end.error, lynx.PeerLost)
    assert (end.tier, end.verified, end.committed, len(end.tokens)) == (Tier.ANCHOR, False, 0, TOKENS)
