"""Bytes are the library's own; arrivals follow from them."""

from __future__ import annotations

import pytest

from lynx import PlaneLayout
from lynx.planning import Arrivals, Choice, Conditions, acceptance_by_part, coding_of, part_bytes
from lynx.transfer import RAW, CacheCoding, make_manifest

SHAPES = ((3, 64), (3, 64), (1, 256))


@pytest.mark.parametrize("coding", [CacheCoding(), CacheCoding(sink_tokens=0, key_anchor_bits=6), RAW])
def test_parts_have_the_bytes_that_a_manifest_of_them_has(coding: CacheCoding) -> None:
    manifest = make_manifest(SHAPES, 100, coding, request_id=1, model="")
    layouts = [PlaneLayout(tensor.spec) for tensor in manifest.tensors]
    wanted = [sum(layout.part(part).bytes for layout in layouts) for part in range(coding.parts)]
    assert [sum(part) for part in part_bytes(SHAPES, 100, coding)] == wanted


@pytest.mark.parametrize("rungs", [2, 3, 5])
def test_rungs_share_out_the_residual(rungs: int) -> None:
    whole = part_bytes(SHAPES, 100, CacheCoding())
    ladder = part_bytes(SHAPES, 100, CacheCoding(rungs=rungs))
    assert len(ladder) == 1 + rungs
    assert ladder[0] == whole[0]
    assert [sum(layer) for layer in zip(*ladder[1:], strict=True)] == whole[1]


def test_a_rung_is_one_plane_of_each_tensor_that_has_one_left() -> None:
    plane = 3 * 100 * 64 // 8
    # K has 3 planes left, V 5.
    parts = part_bytes(((3, 64),), 100, CacheCoding(rungs=5, thin_last_value=False))
    assert [part[0] / plane for part in parts[1:]] == [2, 2, 2, 1, 1]


def test_the_exact_tier_takes_the_cache_to_about_twelve_bits_a_value() -> None:
    values = 2 * 3 * 64 * 2048
    total = sum(part[0] for part in part_bytes(((3, 64),), 2048, CacheCoding(exact=True)))
    assert 8 * total / values == pytest.approx(11.93, abs=0.03)


def test_parts_arrive_in_sending_order() -> None:
    arrivals = Arrivals([[10, 10], [30, 50]], 10)
    assert [arrivals.layer_at(part, layer) for part in (0, 1) for layer in (0, 1)] == [1, 2, 5, 10]
    assert (arrivals.part_at(0), arrivals.part_at(1)) == (2, 10)
    assert arrivals.bytes_at(4) == [20, 20]
    assert (arrivals.next_after(2), arrivals.next_after(10)) == (5, None)


def test_an_empty_part_is_there_with_what_is_before_it() -> None:
    arrivals = Arrivals(part_bytes(((3, 64),) * 4, 100, coding_of(Choice((8, 8), draft=False))), 1e6)
    assert [arrivals.layer_at(1, i) for i in range(4)] == [arrivals.layer_at(0, i) for i in range(4)]


def test_arrivals_need_a_bandwidth() -> None:
    with pytest.raises(ValueError, match="bandwidth"):
        Arrivals([[1]], 0)


def test_acceptance_grows_with_the_parts_and_is_1_on_the_reference() -> None:
    by_part = acceptance_by_part(Conditions(SHAPES, 100, 8), Choice((5, 3), rungs=3))
    assert by_part == sorted(by_part)
    assert len(by_part) == 4
    assert by_part[-1] == 1
    exact = acceptance_by_part(Conditions(SHAPES, 100, 8, exact=True), Choice((5, 3), rungs=3))
    assert len(exact) == 5
    assert exact[3] < exact[4] == 1
