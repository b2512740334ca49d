"""bench/gpu_check.py where there is no device, and what it makes of results."""

from __future__ import annotations

import sys
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
}


def test_without_a_device_it_says_so_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "compute_capability", lambda: None)
    assert gpu_check.main([]) == 0
    assert capsys.readouterr().out == "skipped: no CUDA device\n"


def test_a_difference_is_not_ok_and_neither_is_comparing_nothing() -> None:
    assert [check["ok"] for check in gpu_check.to_checks(RESULTS)] == [True, False, False]


def test_the_table_has_speeds_and_fractions_of_a_copy() -> None:
    assert gpu_check.table(RESULTS).splitlines()[-1].split() == ["encode", "64", "1000", "0.50"]
