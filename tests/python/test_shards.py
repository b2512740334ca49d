"""A cache that two ranks send by heads, put together by one receiver and decoded by the loop as if it were one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import lynx
from lynx.policies import AnchorFirst
from lynx.runtime import Done, decode
from lynx.transfer import CacheCoding, make_manifest

from .conftest import Pair, connected

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")

from lynx.engines.transformers import TransformersEngine  # noqa: E402

PROMPT = [(7 * i * i + 3 * i + 1) % 251 for i in range(60)]
TOKENS = 12


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """A connection for each sending rank."""
    with ExitStack() as stack:
        yield [stack.enter_context(connected()) for _ in range(2)]


def shapes(engine: TransformersEngine) -> list[lynx.LayerShape]:
    return [lynx.LayerShape(heads, head_dim) for heads, head_dim in engine.layers]


def send(pair: Pair, plan: lynx.ShardPlan, rank: int, whole: lynx.Manifest, layers: Any) -> bool:
    """What one sending rank does: it holds its own heads alone."""
    sender = pair.to_decode.offer(plan.manifest(whole, rank, 0))
    for shard in plan.senders.ranks[rank]:
        heads = slice(shard.first_head, shard.first_head + shard.heads)
        for layer in range(shard.first_layer, shard.first_layer + shard.layers):
            keys, values = layers[layer]
            lynx.put_shard(sender, layer, lynx.TensorRole.KEY, keys[heads])
            lynx.put_shard(sender, layer, lynx.TensorRole.VALUE, values[heads])
    return pair.to_decode.finish(sender, 10)


def test_the_decode_loop_takes_a_request_in_shards_like_any_other(pairs: list[Pair], tiny_model: Any) -> None:
    engine = TransformersEngine(tiny_model)
    prefilled = engine.prefill(PROMPT)
    whole = make_manifest(
        engine.layers, len(PROMPT), CacheCoding(), request_id=1, model="tiny", first_token=prefilled.first_token
    )
    tokens = []
    for ranks in (1, 2):
        plan = lynx.ShardPlan(
            lynx.ShardLayout.even(shapes(engine), ranks),
            lynx.ShardLayout.parse(lynx.ShardLayout.even(shapes(engine), 1).serialize()),
        )
        with ThreadPoolExecutor() as pool:
            sending = [pool.submit(send, pairs[s], plan, s, whole, prefilled.layers) for s in range(ranks)]
            sources = [
                (pair.to_prefill.accept_offer(10, plan=plan, shard=0), pair.to_prefill) for pair in pairs[:ranks]
            ]
            receiver = lynx.ShardedReceiver(plan, 0, [(r, peer) for r, peer in sources if r is not None])
            del sources  # it keeps them alive
            assert receiver.manifest.context_tokens == whole.context_tokens
            assert len(receiver.manifest.tensors) == len(whole.tensors)
            events = list(decode(receiver, engine, AnchorFirst(), max_tokens=TOKENS, timeout_s=30))
            receiver.finish()
            assert all(sent.result(10) for sent in sending)
        assert isinstance(events[-1], Done)
        assert events[-1].verified
        tokens.append(events[-1].tokens)
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == TOKENS


def test_layouts_that_do_not_match_are_refused_in_words() -> None:
    layers = [lynx.LayerShape(4, 64)] * 3
    other = [lynx.LayerShape(4, 128)] * 3
    with pytest.raises(lynx.InvalidArgument, match="layer 0 has head_dim 64 at the senders and 128 at the receivers"):
        lynx.ShardPlan(lynx.ShardLayout.even(layers, 2), lynx.ShardLayout.even(other, 1))
    with pytest.raises(lynx.InvalidArgument, match="layer 2: nobody owns heads 2 to 3"):
        lynx.ShardLayout(layers, [[lynx.Shard(0, 3, 0, 2)], [lynx.Shard(0, 2, 2, 2)]])
    plan = lynx.ShardPlan(lynx.ShardLayout.even(layers, 2), lynx.ShardLayout.even(layers, 1, 3))
    assert plan.senders_to(1) == [0, 1]
    assert [(p.layer, p.first_head, p.heads) for p in plan.pieces(1, 2)] == [(2, 2, 2)]


def test_a_request_in_shards_fails_as_one(pairs: list[Pair]) -> None:
    layers = [lynx.LayerShape(2, 64)]
    plan = lynx.ShardPlan(lynx.ShardLayout.even(layers, 2), lynx.ShardLayout.even(layers, 1))
    spec = lynx.TensorSpec(2, 8, 64)
    roles = (lynx.TensorRole.KEY, lynx.TensorRole.VALUE)
    whole = lynx.Manifest(1, [lynx.ManifestTensor(0, role, spec) for role in roles])
    sources = []
    senders = []
    with ThreadPoolExecutor() as pool:
        for rank, pair in enumerate(pairs):
            offer = pool.submit(pair.to_decode.offer, plan.manifest(whole, rank, 0))
            receiver = pair.to_prefill.accept_offer(10, plan=plan)
            assert receiver is not None
            sources.append((receiver, pair.to_prefill))
            senders.append(offer.result(10))
    assembled = lynx.ShardedReceiver(plan, 0, sources)
    pairs[0].to_decode.cancel(senders[0], "out of memory")
    with pytest.raises(lynx.Cancelled, match="out of memory"):
        assembled.wait(0, 10)
    with pytest.raises(lynx.Cancelled, match="another transfer of the same request failed"):
        pairs[1].to_decode.finish(senders[1], 10)
