"""The trace file: its structure, as Perfetto reads it, and what it says of a transfer and a decode loop."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import lynx
from lynx.policies import Action, AnchorFirst, Tier
from lynx.runtime import Committed, Done, Drafted, RolledBack, Started
from lynx.trace import LoopTrace, Trace, merge
from lynx.transfer import CacheCoding, make_manifest, send_cache

from .conftest import Pair

LAYERS = [(np.ones((2, 300, 64), np.float32),) * 2] * 3
SHAPES = [(2, 64)] * 3


def events_of(path: Path) -> list[dict[str, Any]]:
    """Its events, each checked for what the format asks of it."""
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    named = set()
    for event in events:
        assert isinstance(event["name"], str)
        assert event["ts"] >= 0
        assert {"pid", "tid"} <= event.keys()
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert event["args"]["name"]
            named.add((event["pid"], event["tid"]))
        elif event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert (event["ph"], event["s"]) == ("i", "t")
        assert (event["pid"], event["tid"]) in named, "a track has its name before its events"
    return events


def tracks_of(events: list[dict[str, Any]]) -> dict[int, str]:
    return {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}


def slices(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def send(pair: Pair, trace: Trace, parts: int = 2) -> lynx.Revision:
    """One transfer, both ends in the trace."""
    coding = CacheCoding(parts=parts)
    manifest = make_manifest(SHAPES, 300, coding, request_id=7, model="ones", first_token=1, dtype=lynx.DType.F32)
    senders: list[lynx.PlaneSender] = []
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send_cache, pair.to_decode, manifest, LAYERS, on_granted=senders.append)
        receiver = pair.to_prefill.accept_offer(10)
        assert receiver is not None
        assert receiver.wait(parts - 1, 10)
        pair.to_prefill.finish(receiver)
        sending.result(10)
    assert senders[0].wait_written(10)
    trace.add(receiver)
    trace.add(senders[0])
    return receiver.revision


def test_each_stream_has_its_tracks_and_each_part_its_event(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    begin = time.monotonic_ns() / 1000
    with Trace(path, "both") as trace:
        revision = send(pair, trace)
    end = time.monotonic_ns() / 1000
    events = events_of(path)
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["both"]
    tracks = tracks_of(events)
    assert set(tracks.values()) == {
        f"request 7 {tier} {end}" for tier in ("anchor", "residual") for end in ("sent", "received")
    }
    for tier, part in (("anchor", 0), ("residual", 1)):
        for done in ("sent", "received"):
            stream = [e for e in slices(events) if tracks[e["tid"]] == f"request 7 {tier} {done}"]
            assert sorted(e["name"] for e in stream) == ["K 0", "K 1", "K 2", "V 0", "V 1", "V 2"]
            assert sum(e["args"]["bytes"] for e in stream) == revision.arrived_bytes[part]
            assert all(e["args"]["complete"] and e["args"]["resent"] == 0 and e["cat"] == tier for e in stream)
            assert all(begin <= e["ts"] and e["ts"] + e["dur"] <= end for e in stream)


def test_events_of_one_track_follow_each_other(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with Trace(path, "both") as trace:
        send(pair, trace)
    ends: dict[int, float] = {}
    for event in slices(events_of(path)):
        assert event["ts"] >= ends.get(event["tid"], 0) - 1e-3  # a nanosecond of rounding
        ends[event["tid"]] = event["ts"] + event["dur"]
    assert ends


def test_a_transfer_of_which_nothing_came_has_no_track(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    manifest = make_manifest(
        SHAPES, 300, CacheCoding(), request_id=1, model="ones", first_token=1, dtype=lynx.DType.F32
    )
    with Trace(path, "decode") as trace:
        trace.add(lynx.PlaneReceiver(pair.decode, manifest))
    assert tracks_of(events_of(path)) == {}


def test_the_file_is_whole_whenever_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("x" * 100_000)  # an old one, longer than the new one
    trace = Trace(path, "both")
    assert len(events_of(path)) == 1
    loop = LoopTrace(trace, "loop")
    for token in range(5):
        loop.on_event(Drafted(token))
        assert len(slices(events_of(path))) == token + 1
    trace.close()
    assert len(slices(events_of(path))) == 5


def test_the_decode_loop_tells_its_steps_on_a_track_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with Trace(path, "decode") as trace:
        loop = LoopTrace(trace, "request 1 decode loop")
        policy = loop.watch(AnchorFirst(draft_cap=2))
        assert policy.draft_cap == 2
        assert repr(policy) == repr(AnchorFirst(draft_cap=2))
        session = lynx.Session(5, 8, [])
        loop.on_event(Started(5))
        session.observe(lynx.Progress(part=0, held=0))
        for token in (6, 7):
            assert policy.decide(session.snapshot()) is Action.DRAFT
            time.sleep(0.002)
            session.draft(token)
            loop.on_event(Drafted(token))
        session.observe(lynx.Progress(part=1, held=0, reference=1, parts=2))
        assert policy.decide(session.snapshot()) is Action.VERIFY
        time.sleep(0.004)
        loop.on_event(RolledBack(1))
        loop.on_event(Committed((6, 9), 1))
        loop.on_event(Done((6, 9), 2, True, Tier.RESIDUAL, 2, 1, 1))
    events = events_of(path)
    assert set(tracks_of(events).values()) == {"request 1 decode loop"}
    told = [(e["name"], e["ph"]) for e in events if e["ph"] != "M"]
    assert told == [
        ("first token", "i"),
        ("drafted", "X"),
        ("drafted", "X"),
        ("rolled back", "i"),
        ("verify", "X"),
        ("committed", "i"),
        ("done", "i"),
    ]
    by_name = {e["name"]: e for e in events}
    assert by_name["drafted"]["dur"] >= 2000
    assert by_name["verify"]["dur"] >= 4000
    assert by_name["verify"]["ts"] <= by_name["rolled back"]["ts"] <= by_name["committed"]["ts"]
    assert by_name["committed"]["args"] == {"tokens": [6, 9], "accepted": 1}


def test_traces_of_several_processes_become_one(tmp_path: Path) -> None:
    for name in ("prefill", "decode"):
        with Trace(tmp_path / name, name) as trace:
            trace.track("a track")
    (tmp_path / "torn").write_text('{"traceEvents": [')
    merge(tmp_path / "both", [tmp_path / name for name in ("prefill", "missing", "torn", "decode")])
    events = events_of(tmp_path / "both")
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["prefill", "decode"]
    merge(tmp_path / "none", [])
    assert events_of(tmp_path / "none") == []
