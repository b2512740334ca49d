"""The model's times, against sums done by hand and against the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lynx.planning import ANCHORS, Choice, Conditions, best_anchor, forecast, part_bytes
from lynx.planning.times import pass_end
from lynx.transfer import CacheCoding

CONDITIONS = Conditions(((3, 64),) * 30, 2048, 64, bytes_per_second=31e6, step_s=0.04, token_s=0.006)


def test_a_pass_waits_for_each_layer_or_for_the_layer_before_it() -> None:
    assert pass_end([1.0, 2.0, 3.0], 0.0, 0.1) == pytest.approx(3.1)
    assert pass_end([1.0, 1.1, 1.2], 0.0, 0.5) == pytest.approx(2.5)
    assert pass_end([1.0, 1.1, 1.2], 4.0, 0.5) == pytest.approx(5.5)


def test_blocking_is_the_transfer_and_a_step() -> None:
    seconds = sum(map(sum, part_bytes(CONDITIONS.shapes, 2048, CacheCoding()))) / 31e6
    blocking = forecast(CONDITIONS, Choice(draft=False), layer_ready=False)
    assert blocking.first_verified_s == pytest.approx(seconds + 0.04)
    assert blocking.verified_s(32) == pytest.approx(seconds + 32 * 0.04)
    assert blocking.first_provisional_s == blocking.first_verified_s


def test_layer_by_layer_the_first_verified_token_comes_a_layer_after_the_last_byte() -> None:
    whole = forecast(CONDITIONS, Choice((8, 8), draft=False))
    seconds = sum(map(sum, part_bytes(CONDITIONS.shapes, 2048, CacheCoding(sink_tokens=0)))) / 31e6
    assert whole.first_verified_s == pytest.approx(seconds + 0.04 / 30)


def test_drafts_come_with_the_anchor_and_shorten_the_rest() -> None:
    drafting = forecast(CONDITIONS, Choice())
    anchor_s = sum(part_bytes(CONDITIONS.shapes, 2048, CacheCoding())[0]) / 31e6
    assert drafting.first_provisional_s == pytest.approx(anchor_s + 0.04)
    assert drafting.accepted > 3
    assert drafting.verified_s(32) < forecast(CONDITIONS, Choice(draft=False)).verified_s(32)


def test_a_slower_codec_makes_everything_later() -> None:
    slow = replace(CONDITIONS, decode_bytes_per_second=1e9)
    assert forecast(slow, Choice()).first_verified_s > forecast(CONDITIONS, Choice()).first_verified_s
    assert forecast(slow, Choice()).first_provisional_s > forecast(CONDITIONS, Choice()).first_provisional_s


def test_a_ladder_pays_where_there_is_time_for_many_drafts() -> None:
    slow = replace(CONDITIONS, bytes_per_second=6e6)
    assert forecast(slow, Choice(rungs=3)).accepted > forecast(slow, Choice()).accepted + 3


def test_the_best_anchor_widens_with_the_time_that_there_is_to_draft() -> None:
    """Many drafts want to be right; few want to begin early."""
    widths = [ANCHORS.index(best_anchor(replace(CONDITIONS, bytes_per_second=rate))) for rate in (2e6, 31e6)]
    assert widths[0] > widths[1]
