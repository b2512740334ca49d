"""Coding on a ThreadPool. What the pool itself does is tested in C++; here is what crosses the border."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lynx

SHAPE = (4, 3001, 64)  # of several pieces, the last one odd
SPEC = lynx.TensorSpec(*SHAPE, dtype=lynx.DType.F32, anchor_bits=3, sink_tokens=4)


@pytest.fixture(scope="module")
def source() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)


def round_trip(source: Any, layout: lynx.PlaneLayout, planes: int, **executor: Any) -> tuple[Any, Any]:
    """The coded bytes and what `planes` planes of them give."""
    coded = np.zeros(layout.bytes, np.uint8)
    out = np.zeros(SHAPE, np.float32)
    lynx.Codec.best().encode(source, layout, coded, **executor)
    lynx.Codec.best().decode(layout, coded, planes, out, **executor)
    return coded, out


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads_gives_the_same_bytes_and_values(threads: int, source: np.ndarray[Any, Any]) -> None:
    pool = lynx.ThreadPool(threads)
    assert (pool.concurrency, repr(pool)) == (threads, f"ThreadPool(threads={threads})")
    layout = lynx.PlaneLayout(SPEC)
    for planes in (3, 8):
        for alone, pooled in zip(
            round_trip(source, layout, planes), round_trip(source, layout, planes, executor=pool), strict=True
        ):
            assert (alone == pooled).all()


def test_no_executor_is_the_callers_thread(source: np.ndarray[Any, Any]) -> None:
    coded, _ = round_trip(source, lynx.PlaneLayout(SPEC), 8, executor=None)
    assert coded.any()


def test_the_raw_coding_and_strided_memory_go_on_threads_too(source: np.ndarray[Any, Any]) -> None:
    layout = lynx.PlaneLayout(lynx.TensorSpec(*SHAPE, dtype=lynx.DType.F32, coding=lynx.Coding.RAW))
    tokens_first = np.ascontiguousarray(source.transpose(1, 0, 2)).transpose(1, 0, 2)
    _, out = round_trip(tokens_first, layout, 1, executor=lynx.ThreadPool(3))
    assert (out == source).all()


@pytest.mark.parametrize("threads", [0, 1025])
def test_a_count_that_cannot_be_meant_is_refused_in_words(threads: int) -> None:
    with pytest.raises(lynx.InvalidArgument, match=f"threads is {threads}"):
        lynx.ThreadPool(threads)


def test_what_is_no_pool_is_a_type_error(source: np.ndarray[Any, Any]) -> None:
    with ThreadPoolExecutor(1) as other, pytest.raises(TypeError):
        round_trip(source, lynx.PlaneLayout(SPEC), 8, executor=other)


def test_several_python_threads_may_share_a_pool(source: np.ndarray[Any, Any]) -> None:
    pool = lynx.ThreadPool(3)
    layout = lynx.PlaneLayout(SPEC)
    expected, _ = round_trip(source, layout, 8)
    with ThreadPoolExecutor(4) as callers:
        coded = [callers.submit(round_trip, source, layout, 8, executor=pool) for _ in range(12)]
        for call in coded:
            assert (call.result()[0] == expected).all()


def test_python_runs_on_while_a_pool_codes() -> None:
    """Threads are not made to take turns here, so this one runs within a call only if the call gives up the GIL."""
    layout = lynx.PlaneLayout(lynx.TensorSpec(8, 8192, 64, dtype=lynx.DType.F32))
    source = np.ones((8, 8192, 64), np.float32)
    coded = np.zeros(layout.bytes, np.uint8)
    pool = lynx.ThreadPool(2)
    calls: list[tuple[float, float]] = []
    turns: list[float] = []
    ended = threading.Event()

    def code() -> None:
        for _ in range(30):
            begun = time.perf_counter()
            lynx.Codec.best().encode(source, layout, coded, executor=pool)
            calls.append((begun, time.perf_counter()))
        ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        coder = threading.Thread(target=code)
        coder.start()
        while not ended.is_set():
            turns.append(time.perf_counter())
            time.sleep(0.0002)
        coder.join()
    finally:
        sys.setswitchinterval(interval)
    assert any(begun < turn < end for turn in turns for begun, end in calls)


def test_a_pool_ends_with_its_last_reference(source: np.ndarray[Any, Any]) -> None:
    assert_pool_threads(0)
    pool = lynx.ThreadPool(5)
    round_trip(source, lynx.PlaneLayout(SPEC), 8, executor=pool)
    assert_pool_threads(4)
    del pool
    assert_pool_threads(0)


def test_what_a_daemon_thread_holds_at_the_end_is_no_matter_for_a_warning() -> None:
    program = """
import threading, time, lynx
def work():
    node = lynx.Node(arena_bytes=4096)
    held.set()
    time.sleep(60)
held = threading.Event()
threading.Thread(target=work, daemon=True).start()
held.wait()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""


def assert_pool_threads(expected: int) -> None:
    """So many threads of pools there are; one that was joined may be listed for a moment longer."""
    deadline = time.monotonic() + 10
    while (found := sum(name == "lynx pool" for name in names_of_threads())) != expected:
        assert time.monotonic() < deadline, f"{found} threads of pools, not {expected}"
        time.sleep(0.01)


def names_of_threads() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield (task / "comm").read_text(encoding="utf-8").strip()
