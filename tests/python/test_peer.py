"""What Python sees of a connection: options, interrupts, and a peer that comes back."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import lynx


def pair(options: lynx.PeerOptions) -> tuple[lynx.Listener, lynx.Peer, lynx.Peer]:
    prefill, decode = lynx.Node(arena_bytes=1 << 22), lynx.Node(arena_bytes=1 << 22)
    listener = lynx.Listener(prefill, "127.0.0.1", 0, options=options)
    to_prefill = lynx.Peer.connect(decode, "127.0.0.1", listener.port, options=options)
    to_decode = listener.accept(10)
    assert to_decode is not None
    return listener, to_prefill, to_decode


def manifest(request_id: int) -> lynx.Manifest:
    return lynx.Manifest(request_id, [lynx.ManifestTensor(0, lynx.TensorRole.KEY, lynx.TensorSpec(1, 4, 64))])


def test_options_say_what_they_are() -> None:
    options = lynx.PeerOptions(lost_after_s=3, limits=lynx.PeerLimits(max_requests=2))
    assert options.lost_after_s == 3
    assert options.heartbeat_interval_s == 0.25
    assert options.reconnect_for_s == 0
    assert options.limits.max_requests == 2
    with pytest.raises(lynx.InvalidArgument, match="-1"):
        lynx.PeerOptions(lost_after_s=-1)


def test_a_listener_refuses_options_that_no_peer_could_keep() -> None:
    with pytest.raises(lynx.InvalidArgument, match="lost_after"):
        lynx.Listener(lynx.Node(arena_bytes=4096), "127.0.0.1", 0, options=lynx.PeerOptions(lost_after_s=0.1))


def test_an_offer_takes_a_priority_that_can_be_kept_and_no_other() -> None:
    _, to_prefill, to_decode = pair(lynx.PeerOptions())
    received: list[lynx.PlaneReceiver | None] = []
    accepting = threading.Thread(target=lambda: received.append(to_prefill.accept_offer(10)))
    accepting.start()
    sender = to_decode.offer(manifest(1), priority=lynx.Priority(classes=[lynx.SendClass.RESIDUAL] * 3, deadline_s=1))
    accepting.join()
    sender.set_priority(lynx.Priority(weight=2))
    for nonsense in (-1.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(lynx.InvalidArgument, match="weight"):
            sender.set_priority(lynx.Priority(weight=nonsense))


def test_the_floor_of_a_node_is_a_share() -> None:
    assert lynx.Node(arena_bytes=4096, floor=0).rails == 1
    with pytest.raises(lynx.InvalidArgument, match="floor"):
        lynx.Node(arena_bytes=4096, floor=1)


def test_ctrl_c_ends_an_offer_that_nobody_answers_and_the_next_one_works() -> None:
    # Where a shell has put the tests in the background, the signal is ignored, and Python leaves that so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    _, to_prefill, to_decode = pair(lynx.PeerOptions())
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            to_decode.offer(manifest(1), timeout_s=30)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 10
    abandoned = to_prefill.accept_offer(10)
    assert abandoned is not None
    with pytest.raises(lynx.Cancelled):
        abandoned.wait(0, timeout_s=10)

    received: list[lynx.PlaneReceiver | None] = []
    accepting = threading.Thread(target=lambda: received.append(to_prefill.accept_offer(10)))
    accepting.start()
    assert to_decode.offer(manifest(2)) is not None
    accepting.join()
    assert received[0] is not None


def test_an_offer_beyond_the_limit_is_refused_in_words() -> None:
    _, to_prefill, to_decode = pair(lynx.PeerOptions(limits=lynx.PeerLimits(max_requests=0)))
    with pytest.raises(lynx.ProtocolError, match="max_requests"):
        to_decode.offer(manifest(1))
    assert not to_prefill.lost
