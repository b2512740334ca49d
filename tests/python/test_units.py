"""Rates, sizes and addresses as people write them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lynx
from lynx.modes import MODES, coding_from_json, coding_to_json, parse_modes
from lynx.transfer import CacheCoding
from lynx.units import format_bandwidth, parse_bandwidth, parse_endpoint


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("250Mbit", 31_250_000),
        ("1.5Gbit/s", 187_500_000),
        ("250 mbit/s", 31_250_000),
        ("30MB", 30_000_000),
        ("1MiB/s", 1 << 20),
        ("31250000B", 31_250_000),
        ("unlimited", 0),
        ("10Mb", None),
        ("fast", None),
        ("-5Mbit", None),
        ("0.1bit", None),
        ("", None),
    ],
)
def test_bandwidths(text: str, bytes_per_second: int | None) -> None:
    if bytes_per_second is None:
        with pytest.raises(ValueError, match="bandwidth"):
            parse_bandwidth(text)
    else:
        assert parse_bandwidth(text) == bytes_per_second


def test_bandwidths_are_shown_in_bits() -> None:
    assert format_bandwidth(31_250_000) == "250 Mbit/s"
    assert format_bandwidth(0) == "unlimited"


def test_endpoints() -> None:
    assert parse_endpoint("10.0.0.1:80") == ("10.0.0.1", 80)
    assert parse_endpoint("[::1]:80") == ("::1", 80)
    assert parse_endpoint(":80") == ("127.0.0.1", 80)
    for bad in ("host", "host:", "host:x", "host:70000"):
        with pytest.raises(ValueError, match="host:port"):
            parse_endpoint(bad)


def test_modes_by_name() -> None:
    assert [mode.name for mode in parse_modes("int8, lynx")] == ["int8", "lynx"]
    for bad in ("int9", "", "lynx,lynx"):
        with pytest.raises(ValueError, match="mode"):
            parse_modes(bad)


@pytest.mark.parametrize("name", MODES)
def test_a_coding_survives_the_request_that_asks_for_it(name: str) -> None:
    coding = MODES[name].coding
    assert coding_from_json(coding_to_json(coding)) == coding


@pytest.mark.parametrize("rungs", [1, 4, 7])
def test_parts_follow_from_rungs_and_the_exact_tier(rungs: int) -> None:
    for coding, parts in (
        (CacheCoding(rungs=rungs, parts=1), 1),
        (CacheCoding(rungs=rungs), 1 + rungs),
        (CacheCoding(rungs=rungs, exact=True), 2 + rungs),
    ):
        assert coding.parts == parts
        assert coding_from_json(coding_to_json(coding)) == coding
    assert replace(CacheCoding(rungs=rungs), rungs=2).parts == 3
    with pytest.raises(ValueError, match="rungs"):
        CacheCoding(rungs=8)
    with pytest.raises(ValueError, match="raw"):
        CacheCoding(lynx.Coding.RAW, parts=1, rungs=2)


def test_the_last_layers_value_pays_for_the_sinks() -> None:
    assert [CacheCoding().anchor_bits(layer, 3) for layer in range(3)] == [(5, 3), (5, 3), (5, 2)]
    assert CacheCoding(thin_last_value=False).anchor_bits(2, 3) == (5, 3)
    assert CacheCoding(value_anchor_bits=1).anchor_bits(2, 3) == (5, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"coding": "ZIP"},
        {"parts": 4},
        {"parts": True},
        {"rungs": 0},
        {"rungs": 8},
        {"rungs": None},
        {"key_anchor_bits": 9},
        {"value_anchor_bits": "4"},
        {"sink_tokens": 1025},
        {"thin_last_value": 1},
    ],
)
def test_a_coding_from_a_stranger_is_checked(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        coding_from_json(coding_to_json(MODES["int8"].coding) | change)
