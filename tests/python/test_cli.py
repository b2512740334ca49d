"""The command `lynx` as its users run it: real processes on loopback, on a tiny model, and what they leave behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

TIMEOUT_S = 120
SMALL = ("--context", "200")
LYNX = (sys.executable, "-m", "lynx")


def lynx(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LYNX, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **options
    )


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*LYNX, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first line of its output that matches. The suite's own time limit bounds the wait."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(pattern, line):
            return match
    assert process.stderr is not None
    raise AssertionError(f"no line matches {pattern!r}; the process said {process.stderr.read()!r}")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and what it told on standard error."""
    _, told = process.communicate(timeout=30)
    return process.returncode, told


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No child process, no file in /dev/shm, no listening socket of ours outlives a test."""

    def left() -> set[str]:
        files = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
        processes = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and b"\0-m\0lynx\0" in (entry / "cmdline").read_bytes():
                    processes.add(f"process {entry.name}")
        return files | processes

    before = left()
    yield
    deadline = time.monotonic() + 10
    while left() - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left() - before


@pytest.fixture
def model(tiny_model_dir: Path) -> str:
    return str(tiny_model_dir)


def test_info_tells_the_build_and_every_provider() -> None:
    told = lynx("info")
    assert told.returncode == 0
    for word in ("version", "isa", "libfabric", "cuda", "usable"):
        assert word in told.stdout
    info = json.loads(lynx("info", "--json").stdout)
    assert info["isa"] in info["isas"]
    assert any(p["usable"] for p in info["providers"])
    assert all(p["usable"] or p["reason"] for p in info["providers"])


def test_cmake_dir_holds_the_cmake_package() -> None:
    prefix = Path(lynx("--cmake-dir").stdout.strip())
    assert (prefix / "lib" / "cmake" / "lynx" / "lynxConfig.cmake").is_file()
    assert (prefix / "include" / "lynx" / "peer.hpp").is_file()


@pytest.mark.parametrize("provider", ["auto", "shm"])
def test_demo_writes_the_whole_comparison(model: str, provider: str, tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    # So slow that drafts fit between the anchor and the residual.
    told = lynx(
        "demo",
        "--model",
        model,
        *SMALL,
        "--tokens",
        "12",
        "--bandwidth",
        "1Mbit",
        "--provider",
        provider,
        "--json",
        str(path),
    )
    assert told.returncode == 0, told.stderr
    result = json.loads(path.read_text())
    told_of = {
        "model",
        "context_tokens",
        "new_tokens",
        "bandwidth_bytes_per_s",
        "provider",
        "prefill_s",
        "live",
        "modes",
    }
    assert told_of == set(result)
    assert (result["context_tokens"], result["new_tokens"], result["bandwidth_bytes_per_s"]) == (200, 12, 125_000)
    modes = result["modes"]
    assert list(modes) == ["bf16", "int8", "int4", "lynx"]
    for m in modes.values():
        assert len(m["tokens"]) == 12
        assert set(m["time_to_verified_s"]) == {"1", "8", "32", "64"}
    assert modes["lynx"]["equal_to"] == "int8"
    assert modes["lynx"]["equal"] is True
    assert modes["lynx"]["tokens"] == modes["int8"]["tokens"]
    assert modes["lynx"]["drafted"] > 0
    assert modes["lynx"]["bytes"] == modes["int8"]["bytes"] < modes["bf16"]["bytes"]
    assert modes["int4"]["bytes"] < 0.6 * modes["int8"]["bytes"]
    assert modes["int4"]["ttft_verified_s"] is None
    assert set(modes["int4"]["time_to_verified_s"].values()) == {None}
    assert (
        modes["int8"]["ttft_provisional_s"]
        == modes["int8"]["ttft_verified_s"]
        == modes["int8"]["time_to_verified_s"]["1"]
    )
    assert modes["int8"]["time_to_verified_s"]["8"] is not None
    assert modes["int8"]["time_to_verified_s"]["32"] is None
    assert modes["lynx"]["ttft_provisional_s"] < modes["lynx"]["ttft_verified_s"]
    for word in ("prefill: 200 tokens", "int4", "verified", "equal to"):
        assert word in told.stdout


@pytest.mark.parametrize("provider", ["auto", "shm"])
def test_prefill_serves_decode_nodes_from_another_shell_one_after_the_other(model: str, provider: str) -> None:
    common = ("--model", model, "--provider", provider)
    with started("prefill", "--listen", "127.0.0.1:0", *SMALL, *common) as prefill:
        address = read_until(prefill, r"listening on (\S+);")[1]
        for modes in ("int8,lynx", "bf16"):
            decode = lynx("decode", "--connect", address, "--modes", modes, "--tokens", "5", "--json", "-", *common)
            assert decode.returncode == 0, decode.stderr
            result = json.loads(decode.stdout)
            assert list(result["modes"]) == modes.split(",")
        prefill.send_signal(signal.SIGINT)
        assert ended(prefill)[0] == 130


def test_a_live_prefill_counts_in_every_time(model: str, tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    told = lynx(
        *("demo", "--live", "--model", model, "--context", "600", "--tokens", "6"),
        *("--modes", "bf16,int8,lynx,lynx-exact", "--json", str(path)),
    )
    assert told.returncode == 0, told.stderr
    assert "prefill included" in told.stdout
    result = json.loads(path.read_text())
    assert (result["live"], result["prefill_s"]) == (True, None)
    for m in result["modes"].values():
        assert 0 < m["first_token_s"] <= m["ttft_provisional_s"]
        assert 0 < m["anchor_s"] <= m["ttft_provisional_s"]
    assert result["modes"]["lynx"]["equal"] is True
    assert (result["modes"]["lynx-exact"]["equal_to"], result["modes"]["lynx-exact"]["equal"]) == ("bf16", True)


def test_decode_waits_for_a_prefill_node_that_comes_later(model: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    with started(
        "decode", "--wait", "--connect", address, "--model", model, "--tokens", "3", "--modes", "int8"
    ) as decode:
        time.sleep(0.5)
        with started("prefill", "--once", "--listen", address, "--model", model, *SMALL) as prefill:
            assert ended(decode) == (0, "")
            assert ended(prefill) == (0, "")


def test_a_policy_of_ones_own_is_a_class_of_ten_lines(model: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from lynx.policies import Action\n"
        "class Two:\n"
        "    def decide(self, s):\n"
        "        if s.reference_ready:\n"
        "            return Action.VERIFY\n"
        "        return Action.DRAFT if s.can_draft and s.drafted < 2 else Action.WAIT\n"
    )
    told = lynx(
        *("demo", "--model", model, *SMALL, "--tokens", "8", "--bandwidth", "1Mbit"),
        *("--modes", "int8,lynx", "--policy", "mine:Two", "--json", "-"),
        cwd=tmp_path,
    )
    assert told.returncode == 0, told.stderr
    lynx_mode = json.loads(told.stdout)["modes"]["lynx"]
    assert lynx_mode["drafted"] == 2
    assert lynx_mode["equal"] is True


def fails(told: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line that says these words, and no traceback."""
    assert told.returncode == code, told.stderr
    for word in words:
        assert word in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("command", ["prefill", "decode", "demo"])
def test_a_model_that_is_not_there_is_named(command: str) -> None:
    told = lynx(command, "--model", "no/such/model.gguf")
    fails(told, 1, "no/such/model.gguf", "no such file")
    assert told.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_named_before_the_model_is_loaded(model: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        fails(lynx("prefill", "--listen", address, "--model", model), 1, address, "in use")


def test_a_peer_that_is_not_there_is_named(model: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    fails(lynx("decode", "--connect", address, "--model", model), 1, address, "refused")


def test_a_provider_that_is_not_there_is_told_with_those_that_are(model: str) -> None:
    fails(lynx("demo", "--provider", "efa", "--model", model), 1, "efa", "shm")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("demo", "--bandwidth", "fast"), "250Mbit"),
        (("demo", "--tokens", "0"), "above 0"),
        (("demo", "--modes", "int9"), "int9"),
        (("demo", "--policy", "nonsense"), "anchor-first"),
        (("demo", "--policy", "blocking", "--modes", "int8"), "leaves out"),
        (("demo", "--json", "/no/such/folder/demo.json"), "no directory"),
        (("demo", "--trace", "/no/such/folder/trace.json"), "no directory"),
        (("prefill", "--trace", "-"), "name a file"),
        (("decode", "--metrics-port", "65536"), "0 to 65535"),
        (("demo", "--metrics-port", "65535"), "no port after it"),
        (("decode", "--timeout", "nan"), "seconds"),
        (("prefill", "--listen", "nowhere"), "host:port"),
        (("prefill", "--listen", "0.0.0.0:0"), "one address"),
        (("demo", "--context", "5"), "5 tokens"),
        ((), "COMMAND"),
    ],
)
def test_wrong_arguments_are_explained(arguments: Sequence[str], told: str, model: str) -> None:
    if arguments:
        arguments = (*arguments, "--model", model)
    result = lynx(*arguments)
    assert result.returncode in (1, 2)
    assert told in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("provider", ["auto", "shm"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("live", [(), ("--live",)])
def test_a_prefill_node_that_goes_in_mid_stream_ends_decode_at_once(
    model: str, provider: str, end: signal.Signals, live: Sequence[str]
) -> None:
    common = ("--model", model, "--provider", provider)
    slow = ("--bandwidth", "100kbit", *live)
    with started("prefill", "--listen", "127.0.0.1:0", *SMALL, *slow, *common) as prefill:
        address = read_until(prefill, r"listening on (\S+);")[1]
        with started("decode", "--connect", address, "--modes", "int8", "--tokens", "5", *common) as decode:
            read_until(prefill, "sending request 1")
            time.sleep(0.3)
            prefill.send_signal(end)
            begin = time.monotonic()
            code, told = ended(decode)
            assert time.monotonic() - begin < 5
            assert code == 1
            assert "Traceback" not in told
            assert address in told or "cancelled" in told
    if end == signal.SIGKILL and provider == "shm":
        # Nobody can tidy up after itself when it is killed; the next process of the same number does.
        for name in os.listdir("/dev/shm"):
            if str(prefill.pid) in name:
                os.unlink(f"/dev/shm/{name}")


@pytest.mark.parametrize("provider", ["auto", "shm"])
def test_a_decode_node_that_is_killed_does_not_hurt_the_prefill_node(model: str, provider: str) -> None:
    common = ("--model", model, "--provider", provider)
    with started("prefill", "--listen", "127.0.0.1:0", *SMALL, *common) as prefill:
        address = read_until(prefill, r"listening on (\S+);")[1]
        slow = ("--bandwidth", "100kbit")
        with started("decode", "--connect", address, "--modes", "int8", *slow, *common) as decode:
            read_until(prefill, "sending request 1")
            time.sleep(0.3)
            decode.kill()
            read_until(prefill, "left|dropped")
        decode = lynx("decode", "--connect", address, "--modes", "int8", "--tokens", "3", *common)  # type: ignore[assignment]
        assert decode.returncode == 0
        prefill.send_signal(signal.SIGTERM)
        assert ended(prefill)[0] == 130
    for name in os.listdir("/dev/shm"):
        if provider == "shm" and "lynx" in name:
            os.unlink(f"/dev/shm/{name}")


def test_a_demo_leaves_one_trace_of_both_processes(model: str, tmp_path: Path) -> None:
    path, result = tmp_path / "trace.json", tmp_path / "demo.json"
    told = lynx(
        *("demo", "--model", model, *SMALL, "--tokens", "8", "--bandwidth", "1Mbit", "--modes", "int8,lynx"),
        *("--trace", str(path), "--json", str(result), "--metrics-port", "0"),
    )
    assert told.returncode == 0, told.stderr
    assert len(re.findall(r"metrics at http://127\.0\.0\.1:\d+/metrics", told.stdout)) == 2
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"prefill", "decode"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    wanted = {f"request {n} decode loop" for n in (1, 2)}
    for n, tier, way in itertools.product((1, 2), ("anchor", "residual"), ("sent", "received")):
        wanted.add(f"request {n} {tier} {way}")
    assert set(tracks.values()) == wanted
    # What the trace says of the second request is what the comparison says of it.
    measured = json.loads(result.read_text())["modes"]["lynx"]
    of_second: dict[str, list[Any]] = {}
    for e in events:
        if e["ph"] != "M" and tracks[e["pid"], e["tid"]].startswith("request 2"):
            of_second.setdefault(tracks[e["pid"], e["tid"]].split()[-1], []).append(e)
    assert sum(e["args"]["bytes"] for e in of_second["received"]) == measured["bytes"]
    assert sum(e["args"]["bytes"] for e in of_second["sent"]) == measured["bytes"]
    assert sum(e["name"] == "drafted" for e in of_second["loop"]) == measured["drafted"]
    # One clock: the first chunk cannot arrive before it was posted.
    assert min(e["ts"] for e in of_second["sent"]) <= min(e["ts"] for e in of_second["received"])


def test_an_interrupted_request_is_in_the_trace_as_far_as_it_came(model: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with started("demo", "--model", model, *SMALL, "--bandwidth", "100kbit", "--trace", str(path)) as demo:
        read_until(demo, "sending request 1")
        time.sleep(0.5)
        demo.send_signal(signal.SIGINT)
        assert ended(demo)[0] == 130
    moved = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert 0 < len([e for e in moved if e["args"]["bytes"] > 0]) < 2 * 4, "of two layers' K and V, at both ends"


def test_a_prefill_node_answers_prometheus_while_it_serves(model: str) -> None:
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    common = ("--model", model)
    with started("prefill", "--listen", "127.0.0.1:0", *SMALL, *common, "--metrics-port", "0") as prefill:
        url = read_until(prefill, r"metrics at (\S+)")[1]
        address = read_until(prefill, r"listening on (\S+);")[1]
        decode = lynx(
            "decode", "--connect", address, "--modes", "int8", "--tokens", "2", "--json", "-", "--model", model
        )
        assert decode.returncode == 0, decode.stderr
        sent = json.loads(decode.stdout)["modes"]["int8"]["bytes"]
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        told = [float(n) for n in re.findall(r'^lynx_sent_bytes_total{tier="\w+"} (\S+)$', text, re.MULTILINE)]
        assert sum(told) == sent
        assert 'lynx_sent_transfers_total{outcome="done"} 1.0' in text
        prefill.send_signal(signal.SIGINT)
        assert ended(prefill)[0] == 130


@pytest.mark.parametrize("after", ["prefill: 200 tokens", "sending request 1"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_interrupted_takes_both_processes_with_it(model: str, after: str, end: signal.Signals) -> None:
    with started("demo", "--model", model, *SMALL, "--bandwidth", "100kbit") as demo:
        read_until(demo, after)
        demo.send_signal(end)
        code, told = ended(demo)
        assert code == (-signal.SIGKILL if end == signal.SIGKILL else 130)
        assert "Traceback" not in told
