"""Sending a cache while prefill computes it, and decoding a request whose manifest went before its first token."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import lynx
from lynx.policies import AnchorFirst, Blocking
from lynx.runtime import Arrived, Done, Started, decode
from lynx.transfer import RAW, CacheCoding, CacheSender, make_manifest, send_cache

from .conftest import Pair

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")

from lynx.engines import EngineError  # noqa: E402
from lynx.engines.transformers import TransformersEngine  # noqa: E402

PROMPT = [(7 * i * i + 3 * i + 1) % 251 for i in range(120)]
CHUNK = 32  # four chunks, the last one shorter
INT8 = CacheCoding()


@pytest.fixture(scope="module")
def engine(tiny_model: Any) -> TransformersEngine:
    return TransformersEngine(tiny_model, prefill_chunk_tokens=CHUNK)


@pytest.fixture(scope="module")
def decoding(tiny_model: Any) -> TransformersEngine:
    return TransformersEngine(tiny_model)


def manifest_of(engine: TransformersEngine, coding: CacheCoding = INT8) -> lynx.Manifest:
    return make_manifest(
        engine.layers, len(PROMPT), coding, request_id=1, model="tiny", piece_tokens=engine.prefill_chunk_tokens
    )


def send_live(pair: Pair, engine: TransformersEngine, coding: CacheCoding = INT8, wrap: Any = None) -> None:
    """A prefill node's side. `wrap` makes of the sender's `put` what prefill calls."""
    with CacheSender(pair.to_decode, manifest_of(engine, coding)) as sender:
        prefilled = engine.prefill(PROMPT, on_rows=wrap(sender.put) if wrap else sender.put)
        sender.finish(prefilled.first_token)


def accepted(pair: Pair) -> lynx.PlaneReceiver:
    receiver = pair.to_prefill.accept_offer(10)
    assert receiver is not None
    return receiver


def is_free(node: lynx.Node) -> bool:
    """The nodes' threads may hold on to an ended transfer for an instant."""
    deadline = time.monotonic() + 10
    while node.arena_free_bytes != node.arena_bytes and time.monotonic() < deadline:
        time.sleep(0.01)
    return node.arena_free_bytes == node.arena_bytes


def test_the_rows_that_prefill_hands_over_are_the_caches(engine: TransformersEngine) -> None:
    whole = engine.prefill(PROMPT)
    pieces: list[tuple[int, int, Any, Any]] = []
    live = engine.prefill(PROMPT, on_rows=lambda *piece: pieces.append(piece))
    assert (live.first_token, live.layers) == (whole.first_token, [])
    layers = len(engine.layers)
    assert [p[:2] for p in pieces] == [(layer, t) for t in range(0, len(PROMPT), CHUNK) for layer in range(layers)]
    for layer, (keys, values) in enumerate(whole.layers):
        assert torch.equal(torch.cat([p[2] for p in pieces if p[0] == layer], dim=1), keys)
        assert torch.equal(torch.cat([p[3] for p in pieces if p[0] == layer], dim=1), values)


def test_the_rows_of_a_bf16_model_are_not_copied(tiny_model: Any) -> None:
    engine = TransformersEngine(tiny_model.to(torch.bfloat16), prefill_chunk_tokens=CHUNK)
    try:
        rows: list[Any] = []
        engine.prefill(PROMPT, on_rows=lambda layer, token, keys, values: rows.append(keys) if layer == 0 else None)
    finally:
        tiny_model.to(torch.float32)
    assert len({piece.untyped_storage().data_ptr() for piece in rows}) == 1


def test_a_manifest_in_pieces_covers_each_tensor_once_and_has_its_sinks_in_the_first(
    engine: TransformersEngine,
) -> None:
    for sinks in (4, CHUNK + 1):
        tensors = manifest_of(engine, CacheCoding(sink_tokens=sinks)).tensors
        keys = [t for t in tensors if t.layer == 1 and t.role == lynx.TensorRole.KEY]
        assert [(t.first_token, t.spec.tokens) for t in keys] == [(0, 32), (32, 32), (64, 32), (96, 24)]
        assert sum(min(t.spec.sink_tokens, t.spec.tokens) for t in keys) == sinks
    with pytest.raises(ValueError, match="at least 1"):
        make_manifest(engine.layers, 100, INT8, request_id=1, model="tiny", piece_tokens=0)


@pytest.mark.parametrize("coding", [INT8, RAW, CacheCoding(exact=True), CacheCoding(parts=1)])
def test_a_cache_sent_while_it_is_computed_gives_the_tokens_of_one_sent_afterwards(
    pair: Pair, engine: TransformersEngine, decoding: TransformersEngine, coding: CacheCoding
) -> None:
    def tokens(sending: Future[None]) -> Done:
        receiver = accepted(pair)
        events = list(decode(receiver, decoding, AnchorFirst(draft_cap=8), max_tokens=16, timeout_s=60))
        pair.to_prefill.finish(receiver)
        sending.result(10)
        assert isinstance(events[-1], Done)
        return events[-1]

    with ThreadPoolExecutor() as pool:
        live = tokens(pool.submit(send_live, pair, engine, coding))
        cache = engine.prefill(PROMPT)
        manifest = make_manifest(
            engine.layers, len(PROMPT), coding, request_id=1, model="tiny", first_token=cache.first_token
        )
        stored = tokens(pool.submit(send_cache, pair.to_decode, manifest, cache.layers))
    assert (live.tokens, live.verified, live.tier) == (stored.tokens, stored.verified, stored.tier)
    assert is_free(pair.prefill)
    assert is_free(pair.decode)


def test_layers_are_on_the_other_node_before_prefill_ends(
    pair: Pair, engine: TransformersEngine, decoding: TransformersEngine
) -> None:
    receivers: list[lynx.PlaneReceiver] = []
    arrived: list[int] = []

    def wrap(put: Any) -> Any:
        def on_rows(layer: int, first_token: int, keys: Any, values: Any) -> None:
            put(layer, first_token, keys, values)
            if first_token == 96 and layer == 0:
                deadline = time.monotonic() + 10
                while receivers[0].revision.tensors_ready[0] < 12 and time.monotonic() < deadline:
                    time.sleep(0.01)
                arrived.append(receivers[0].revision.tensors_ready[0])

        return on_rows

    with ThreadPoolExecutor() as pool:
        offering = pool.submit(CacheSender, pair.to_decode, manifest_of(engine))
        receivers.append(accepted(pair))
        with offering.result(10) as sender:
            first_token = engine.prefill(PROMPT, on_rows=wrap(sender.put)).first_token
            assert arrived[0] >= 12, "three of four chunks of two layers are computed"
            finishing = pool.submit(sender.finish, first_token)
            events = list(decode(receivers[0], decoding, Blocking(), max_tokens=4, timeout_s=30))
            # What arrives while the token is still to come is told before it.
            assert next(e for e in events if not isinstance(e, Arrived)) == Started(first_token)
            pair.to_prefill.finish(receivers[0])
            finishing.result(10)


def test_a_decode_node_that_gives_up_ends_prefill(pair: Pair, engine: TransformersEngine) -> None:
    receivers: list[lynx.PlaneReceiver] = []
    seen: list[int] = []

    def wrap(put: Any) -> Any:
        def on_rows(layer: int, first_token: int, keys: Any, values: Any) -> None:
            if first_token == CHUNK and CHUNK not in seen:
                pair.to_prefill.cancel(receivers[0], "changed my mind")
            seen.append(first_token)
            put(layer, first_token, keys, values)
            time.sleep(0.05)  # a layer of a real model takes longer

        return on_rows

    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send_live, pair, engine, INT8, wrap)
        receivers.append(accepted(pair))
        with pytest.raises(lynx.Cancelled, match="changed my mind"):
            sending.result(20)
    assert max(seen) < 96, "prefill went on to its end for nobody"
    del sending, receivers[:]
    gc.collect()  # the exception's traceback holds the sender
    assert is_free(pair.prefill)
    assert is_free(pair.decode)


@pytest.mark.parametrize(
    ("error", "told"), [(KeyboardInterrupt, "interrupted"), (EngineError, "EngineError: out of memory")]
)
def test_prefill_that_fails_tells_the_decode_node_why(
    pair: Pair, engine: TransformersEngine, decoding: TransformersEngine, error: type[BaseException], told: str
) -> None:
    def wrap(put: Any) -> Any:
        def on_rows(layer: int, first_token: int, keys: Any, values: Any) -> None:
            if first_token == CHUNK:
                raise error("out of memory")
            put(layer, first_token, keys, values)

        return on_rows

    def receive() -> Sequence[object]:
        receiver = accepted(pair)
        return list(decode(receiver, decoding, Blocking(), max_tokens=4, timeout_s=30))

    with ThreadPoolExecutor() as pool:
        receiving = pool.submit(receive)
        with pytest.raises(error):
            send_live(pair, engine, INT8, wrap)
        with pytest.raises(lynx.Cancelled, match=told):
            receiving.result(20)


def test_a_piece_that_the_manifest_does_not_have_ends_both_sides(
    pair: Pair, engine: TransformersEngine, decoding: TransformersEngine
) -> None:
    def wrap(put: Any) -> Any:
        return lambda layer, first_token, keys, values: put(layer, first_token + 1, keys, values)

    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send_live, pair, engine, INT8, wrap)
        receiver = accepted(pair)
        with pytest.raises(lynx.Cancelled, match="no such tensor"):
            receiver.first_token(20)
        with pytest.raises(lynx.InvalidArgument, match="no such tensor"):
            sending.result(20)


def test_a_sender_that_is_left_before_its_end_cancels(pair: Pair, engine: TransformersEngine) -> None:
    def leave() -> None:
        with CacheSender(pair.to_decode, manifest_of(engine)):
            pass

    with ThreadPoolExecutor() as pool:
        leaving = pool.submit(leave)
        receiver = accepted(pair)
        with pytest.raises(lynx.Cancelled, match="before it had finished"):
            receiver.wait(0, 20)
        leaving.result(10)


def test_prefill_waits_for_a_codec_that_does_not_keep_up(pair: Pair, engine: TransformersEngine) -> None:
    """Else a fast model would hold its whole cache twice."""
    with ThreadPoolExecutor() as pool:
        offering = pool.submit(CacheSender, pair.to_decode, manifest_of(engine), queued=1)
        receiver = accepted(pair)
        with offering.result(10) as sender:
            finishing = pool.submit(lambda: sender.finish(engine.prefill(PROMPT, on_rows=sender.put).first_token))
            assert receiver.wait(1, 20)
            assert receiver.first_token(20) is not None
            pair.to_prefill.finish(receiver)
            finishing.result(10)


def test_decoding_waits_for_the_first_token_until_its_deadline(
    pair: Pair, engine: TransformersEngine, decoding: TransformersEngine
) -> None:
    cache = engine.prefill(PROMPT)
    with ThreadPoolExecutor() as pool:
        offering = pool.submit(
            pair.to_decode.offer, make_manifest(engine.layers, len(PROMPT), INT8, request_id=1, model="tiny")
        )
        receiver = accepted(pair)
        sender = offering.result(10)
        for layer, (keys, values) in enumerate(cache.layers):
            sender.put(layer, lynx.TensorRole.KEY, keys)
            sender.put(layer, lynx.TensorRole.VALUE, values)
        assert receiver.wait(1, 10)
        assert receiver.first_token(0) is None
        events = []
        with pytest.raises(lynx.Timeout, match=r"within 0\.3 s.*first token"):
            events += list(decode(receiver, decoding, AnchorFirst(), max_tokens=4, timeout_s=0.3))
        loop = decode(receiver, decoding, AnchorFirst(), max_tokens=4, timeout_s=30)
        assert isinstance(next(loop), Arrived)
        with pytest.raises(lynx.InvalidArgument, match="0 or more"):
            pair.to_decode.send_first_token(sender, -1)
        pair.to_decode.send_first_token(sender, cache.first_token)
        with pytest.raises(lynx.InvalidArgument, match="already been told"):
            pair.to_decode.send_first_token(sender, cache.first_token)
        assert Started(cache.first_token) in list(loop)
        assert receiver.first_token(0) == cache.first_token
