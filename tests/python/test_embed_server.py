"""examples/embed_server, built against the package as installed, as somebody who embeds Lynx in C++ builds it."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "embed_server"
SHM = Path("/dev/shm")
LAYERS = 3
SHAPE = ["--layers", str(LAYERS), "--tokens", "256", "--heads", "2", "--head-dim", "64"]
# For runs that have to last until they are interrupted.
SLOW = ["--bandwidth", "100000"]
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def embed_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, configured and built the way its README says."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    prefix = subprocess.run(
        [sys.executable, "-m", "lynx", "--cmake-dir"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    ).stdout.strip()
    build = tmp_path_factory.mktemp("embed_server")
    for command in (
        # No package registry and no system prefix: an installation from elsewhere must not stand in for this one.
        ["cmake", "-S", str(SOURCE), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefix}",
         "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF"],
        ["cmake", "--build", str(build)],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"lynx_DIR:PATH={prefix}/" in (build / "CMakeCache.txt").read_text()
    return build / "embed_server"


@pytest.fixture(autouse=True)
def _nothing_is_left_in_shm() -> Iterator[None]:
    before = _shm_files()
    yield
    # Other tests may run beside this one: their processes live, those of these tests have ended.
    left = {name for name in _shm_files() - before if not Path("/proc", name.split("-")[2]).exists()}
    assert not left


def _shm_files() -> set[str]:
    return {path.name for path in SHM.glob("lynx-*")}


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def start(program: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit status, stdout and stderr; a process that does not end in time is killed and fails the test."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail(f"{process.args!r} did not end in {TIMEOUT_S} s")
    return process.returncode, out, err


def check_timeline(out: str) -> None:
    timeline = re.findall(r"^ *([0-9.]+) ms  (.*)$", out, re.MULTILINE)
    times = [float(ms) for ms, _ in timeline]
    events = [event for _, event in timeline]
    assert times == sorted(times)
    assert events[0].startswith("manifest: ")
    assert f" {LAYERS} layers" in events[0]
    anchors = [events.index(f"anchor of layer {layer} complete") for layer in range(LAYERS)]
    residuals = [events.index(f"residual of layer {layer} complete") for layer in range(LAYERS)]
    # A residual may come while later anchors are still to be coded, but never before its own.
    assert all(anchor < residual for anchor, residual in zip(anchors, residuals, strict=True))
    assert max(anchors) < events.index("anchor complete") < max(residuals) < events.index("all complete")
    assert events[-1].startswith("decoded: ")

    summary = re.findall(r"^(anchor|all planes) +(\d+) bytes, .*, max error ([0-9.]+)$", out, re.MULTILINE)
    (_, anchor_bytes, anchor_error), (_, all_bytes, all_error) = summary
    values = LAYERS * 2 * 256 * 2 * 64
    # 5 bits of K and 3 of V, and 4 bytes of scale and zero for 64 values. Of the first four tokens the anchor has the
    # other 3 bits of K and 5 of V, too: together a byte for each of a head's 64.
    sinks = LAYERS * 2 * 4 * 64
    heads = LAYERS * 2 * 64  # with the checksums
    assert int(anchor_bytes) == values * 9 // 16 + sinks + heads
    assert int(all_bytes) == values * 17 // 16 + sinks + heads
    # Not zero either: a quantized cache that equals its source was not quantized, or not compared.
    assert 0.1 < float(anchor_error) < 2.0
    assert 0.001 < float(all_error) < 0.08


@pytest.mark.parametrize("provider", ["auto", "shm"])
def test_one_command_shows_both_sides(embed_server: Path, provider: str) -> None:
    done = run(embed_server, "--provider", provider, *SHAPE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    check_timeline(done.stdout)
    assert re.search(r"^prefill: sent \d+ bytes to ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("provider", ["auto", "shm"])
def test_two_processes_stream_a_cache(embed_server: Path, provider: str) -> None:
    prefill = start(embed_server, "prefill", "--listen", "127.0.0.1:0", "--provider", provider, *SHAPE)
    port = first_line(prefill).removeprefix("listening ")
    decode = run(embed_server, "decode", "--connect", f"127.0.0.1:{port}", "--provider", provider)
    status, out, err = end(prefill)
    assert (decode.returncode, decode.stderr) == (0, "")
    assert (status, err) == (0, "")
    check_timeline(decode.stdout)
    assert out.startswith("sent ")


def test_anchors_are_usable_well_before_all_is_there(embed_server: Path) -> None:
    # Slow enough for the link to be what takes the time: the anchor is about 9 of 17 parts of the bytes.
    done = run(embed_server, *SHAPE, "--bandwidth", "200000")
    usable = [float(ms) for ms in re.findall(r"usable after ([0-9.]+) ms", done.stdout)]
    assert len(usable) == 2, done.stdout + done.stderr
    assert usable[0] < 0.75 * usable[1]


def test_decode_says_where_nobody_listens(embed_server: Path) -> None:
    with socket.socket() as taken:  # bound, so nobody else gets it, but not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(embed_server, "decode", "--connect", address)
    assert done.returncode == 1
    assert address in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_prefill_says_that_a_port_is_taken(embed_server: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(embed_server, "prefill", "--listen", address)
    assert done.returncode == 1
    assert address in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["decode"], ["prefill", "--listen", "nowhere"], ["--layers", "0"], ["--listen", "127.0.0.1:1"], ["--tokens"]],
)
def test_a_wrong_command_line_ends_with_2(embed_server: Path, arguments: list[str]) -> None:
    done = run(embed_server, *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--help" in done.stderr


def test_a_shape_that_cannot_be_coded_is_refused_by_name(embed_server: Path) -> None:
    done = run(embed_server, "prefill", "--listen", "127.0.0.1:0", "--head-dim", "7")
    assert done.returncode == 1
    assert "head_dim is 7" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_both_processes(embed_server: Path, number: signal.Signals) -> None:
    process = start(embed_server, "--provider", "shm", *SHAPE, *SLOW)
    assert "manifest" in first_line(process)  # in mid-stream
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(number)
    status, _, err = end(process)
    assert status == 130
    assert "interrupted" in err
    assert len(children) == 1
    assert not Path("/proc", children[0]).exists()


def test_a_killed_sender_is_reported(embed_server: Path) -> None:
    prefill = start(embed_server, "prefill", "--listen", "127.0.0.1:0", *SHAPE, *SLOW)
    port = first_line(prefill).removeprefix("listening ")
    decode = start(embed_server, "decode", "--connect", f"127.0.0.1:{port}")
    assert "manifest" in first_line(decode)
    prefill.kill()
    killed = time.monotonic()
    status, _, err = end(decode)
    end(prefill)
    assert status == 1
    assert f"127.0.0.1:{port}" in err
    assert time.monotonic() - killed < 10


def test_a_sender_whose_receiver_is_killed_ends(embed_server: Path) -> None:
    process = start(embed_server, *SHAPE, *SLOW)
    assert "manifest" in first_line(process)
    process.kill()
    # The child shares its stderr, which has its end only when the child has ended, too.
    _, _, err = end(process)
    assert "embed_server prefill: " in err
