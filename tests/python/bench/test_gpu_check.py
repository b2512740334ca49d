"""bench/gpu_check.py where there is no device, and what it makes of results."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # Benches are run from the checkout, never installed.

from bench import gpu_check

RESULTS: dict[str, Any] = {
    "device": "a device, sm_90",
    "build": "CUDA 13 for sm_90",
    "identity": [
        {"name": "planes", "compared": 100, "differing": 0},
        {"name": "raw", "compared": 100, "differing": 2},
        {"name": "exact tier", "compared": 0, "differing": 0},
    ],
    "kernels": [
        {
            "name": "encode",
            "head_dim": 64,
            "source_bytes": 2e9,
            "milliseconds": 2.0,
            "copy_milliseconds": 1.0,
        }
    ],
    "transfers": [
        {
            "provider": "shm",
            "memory": "CUDA",
            "path": "staged",
            "why": "there is no way",
            "source_bytes": 2e9,
            "milliseconds": 1000.0,
            "compared": 100,
            "differing": 0,
        },
        {
            "provider": "net",
            "memory": "pinned",
            "path": "failed",
            "why": "it ended",
            "source_bytes": 0,
            "milliseconds": 0,
            "compared": 0,
            "differing": 0,
        },
    ],
}


def test_without_a_device_it_says_so_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "compute_capability", lambda: None)
    assert gpu_check.main([]) == 0
    assert capsys.readouterr().out == "skipped: no CUDA device\n"


def test_a_difference_is_not_ok_and_neither_is_comparing_nothing() -> None:
    assert [check["ok"] for check in gpu_check.to_checks(RESULTS)] == [True, False, False, True, False]


def test_the_table_has_speeds_and_fractions_of_a_copy() -> None:
    lines = gpu_check.table(RESULTS).splitlines()
    assert lines[3].split() == ["encode", "64", "1000", "0.50"]
    assert lines[-2].split() == ["shm", "CUDA", "2.00", "staged:", "there", "is", "no", "way"]
    assert lines[-1].split() == ["net", "pinned", "0.00", "failed:", "it", "ended"]


def test_without_transfers_the_table_says_so() -> None:
    assert "transfers: skipped" in gpu_check.table(RESULTS | {"transfers": []})


def test_at_the_deadline_a_command_ends_with_all_that_it_started() -> None:
    read_end, write_end = os.pipe()
    with pytest.raises(subprocess.TimeoutExpired):
        gpu_check.run(["sh", "-c", "sleep 60 & wait"], time.monotonic() + 0.3, write_end)
    os.close(write_end)
    # The pipe ends once nobody holds it any more: neither the shell nor what it left in the background.
    assert select.select([read_end], [], [], 10)[0] == [read_end]
    assert os.read(read_end, 1) == b""
    os.close(read_end)


def test_a_command_in_time_gives_its_exit_code_and_output() -> None:
    assert gpu_check.run(["sh", "-c", "echo out; exit 3"], time.monotonic() + 60, subprocess.PIPE) == (3, "out\n")


def test_a_program_that_hangs_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(gpu_check, "compute_capability", lambda: "90")
    monkeypatch.setattr(gpu_check, "TIME_LIMIT_S", 0.3)
    assert gpu_check.main(["--program", str(program)]) == 1
    assert "timed out" in capsys.readouterr().err
