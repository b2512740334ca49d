"""Pre-shared keys: the class, listeners and peers with and without one, and the command line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import lynx

TIMEOUT_S = 60
LYNX = (sys.executable, "-m", "lynx")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    lynx.PresharedKey.generate_file(path)
    return path


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LYNX, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )


@contextlib.contextmanager
def listening(model: str, *arguments: str) -> Iterator[str]:
    """A prefill node, and its address once it serves."""
    command = [*LYNX, "prefill", "--model", model, "--context", "150", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if match := re.search(r"127\.0\.0\.1:\d+", line):
                yield match[0]
                break
        else:
            pytest.fail("the prefill process did not listen")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)


def test_a_key_that_is_short_or_none_is_refused() -> None:
    with pytest.raises(lynx.InvalidArgument, match="16 bytes is too short"):
        lynx.PresharedKey.from_bytes(bytes(16))
    with pytest.raises(lynx.InvalidArgument, match="hexadecimal or base64"):
        lynx.PresharedKey.from_text("a password")
    assert "00" not in repr(lynx.PresharedKey.from_text("00" * 32)).partition(" object")[0]


def test_a_key_file_that_others_may_read_is_refused(key_file: Path) -> None:
    lynx.PresharedKey.from_file(key_file)
    key_file.chmod(0o644)
    with pytest.raises(lynx.InvalidArgument, match="chmod 600"):
        lynx.PresharedKey.from_file(key_file)


def test_peers_of_one_key_meet_and_others_are_refused_on_both_ends(key_file: Path) -> None:
    node = lynx.Node(arena_bytes=1 << 20)
    key = lynx.PresharedKey.from_file(key_file)
    listener = lynx.Listener(node, "127.0.0.1", 0, key=key)
    with ThreadPoolExecutor() as pool:
        for other in (None, lynx.PresharedKey.from_bytes(bytes(32))):
            connecting = pool.submit(lynx.Peer.connect, node, "127.0.0.1", listener.port, key=other)
            with pytest.raises(lynx.AuthenticationFailed, match="give both sides the same key"):
                listener.accept()
            with pytest.raises(lynx.AuthenticationFailed, match="give both sides the same key"):
                connecting.result()
        connecting = pool.submit(lynx.Peer.connect, node, "127.0.0.1", listener.port, key=key)
        peer = listener.accept()
        assert peer is not None
        connecting.result().send_message(b"hello")
        assert peer.receive_message() == b"hello"


def test_other_addresses_than_loopback_need_a_key_or_a_wish(key_file: Path) -> None:
    node = lynx.Node(arena_bytes=1 << 20)
    with pytest.raises(lynx.InvalidArgument, match="lynx keygen"):
        lynx.Listener(node, "0.0.0.0", 0)
    assert lynx.Listener(node, "0.0.0.0", 0, allow_unauthenticated=True).port
    assert lynx.Listener(node, "0.0.0.0", 0, key=lynx.PresharedKey.from_file(key_file)).port


def test_keygen_makes_a_file_for_its_owner_alone_and_overwrites_none(tmp_path: Path) -> None:
    path = tmp_path / "key"
    told = run("keygen", str(path))
    assert told.returncode == 0, told.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"[0-9a-f]{64}\n", path.read_text())
    assert path.read_text().strip() not in told.stdout
    before = path.read_text()
    told = run("keygen", str(path))
    assert told.returncode == 1
    assert "not overwritten" in told.stderr
    assert path.read_text() == before


@pytest.mark.processes
def test_prefill_refuses_a_bad_key_and_a_public_address_before_it_loads_a_model(
    tiny_model_dir: Path, key_file: Path
) -> None:
    model = str(tiny_model_dir)
    told = run("prefill", "--model", model, "--listen", "192.0.2.1:0", "--provider", "shm")
    assert told.returncode == 1
    assert "without a key" in told.stderr
    assert "--insecure" in told.stderr
    key_file.chmod(0o640)
    for command in ("prefill", "decode", "demo"):
        told = run(command, "--model", model, LYNX_KEY_FILE=str(key_file))
        assert told.returncode == 1
        assert f"key file {key_file}: others than its owner" in told.stderr


@pytest.mark.processes
def test_decode_needs_the_prefill_nodes_key(tiny_model_dir: Path, key_file: Path, tmp_path: Path) -> None:
    model = str(tiny_model_dir)
    other = tmp_path / "other"
    lynx.PresharedKey.generate_file(other)
    with listening(model, "--key-file", str(key_file)) as address:
        common = ("decode", "--connect", address, "--model", model, "--modes", "int8", "--tokens", "4")
        told = run(*common, "--key-file", str(other))
        assert told.returncode == 1
        assert "another pre-shared key" in told.stderr
        told = run(*common)
        assert told.returncode == 1
        assert "wants a pre-shared key" in told.stderr
        told = run(*common, LYNX_KEY_FILE=str(key_file))
        assert told.returncode == 0, told.stderr


@pytest.mark.processes
def test_demo_runs_with_a_key(tiny_model_dir: Path, key_file: Path) -> None:
    told = run(
        *("demo", "--model", str(tiny_model_dir), "--context", "150", "--modes", "int8", "--tokens", "4"),
        *("--key-file", str(key_file)),
    )
    assert told.returncode == 0, told.stderr
