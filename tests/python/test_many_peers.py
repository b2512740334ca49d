"""Python beside a core that waits: no wait of one thread holds up another, and waits end as Python users expect."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import lynx

from .conftest import Pair, connected

ROLES = (lynx.TensorRole.KEY, lynx.TensorRole.VALUE)


def manifest(request_id: int, tokens: int = 8) -> lynx.Manifest:
    spec = lynx.TensorSpec(1, tokens, 64)
    return lynx.Manifest(request_id, [lynx.ManifestTensor(0, role, spec) for role in ROLES])


def opened(pair: Pair, request_id: int) -> tuple[lynx.PlaneSender, lynx.PlaneReceiver]:
    with ThreadPoolExecutor() as pool:
        offer = pool.submit(pair.to_decode.offer, manifest(request_id))
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        return offer.result(10), receiver


def test_python_runs_on_while_the_core_waits(pair: Pair) -> None:
    sender, receiver = opened(pair, 1)
    assembled_wait: list[Callable[[], object]] = [
        lambda: receiver.wait(0, 0.3),
        lambda: receiver.wait_newer(0, 0.3),
        lambda: receiver.wait_layer(0, 0, 0.3),
        lambda: pair.to_prefill.accept_offer(0.3),
        lambda: pair.to_prefill.receive_message(0.3),
        lambda: sender.wait_written(0.3),
        lambda: pair.to_decode.finish(sender, 0.3),
    ]
    for wait in assembled_wait:
        waiting = threading.Thread(target=wait)
        waiting.start()
        turns = 0
        while waiting.is_alive():
            time.sleep(0.001)
            turns += 1
        assert turns > 20, "the other thread held the GIL"


def test_an_offer_without_room_is_served_once_there_is_some() -> None:
    room = manifest(1, 256).slot_bytes
    with connected(arena_bytes=room + room // 2) as pair, ThreadPoolExecutor() as pool:
        first = pool.submit(pair.to_decode.offer, manifest(1, 128))
        held = pair.to_prefill.accept_offer(10)
        assert held is not None
        sender = first.result(10)
        # Room for it at the sender, whose own first transfer takes as much as the receiver's: none on either side.
        with pytest.raises(lynx.Timeout, match="left no room"):
            pair.to_decode.offer(manifest(2, 256), 0.2)
        second = pool.submit(pair.to_decode.offer, manifest(3, 256), 10)
        pair.to_prefill.cancel(held, "enough")
        del held, sender, first
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        assert receiver.manifest.request_id == 3
        second.result(10)
        with pytest.raises(lynx.ArenaFull):
            pair.to_decode.offer(manifest(4, 4096), 10)
