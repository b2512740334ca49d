"""When LayerReady and Ladder draft, refine and begin the verifying pass."""

from __future__ import annotations

from typing import Any

import pytest

from lynx import Snapshot
from lynx.policies import Action, Ladder, LayerReady, Policy


def snapshot(**fields: Any) -> Snapshot:
    """Eight layers, the anchor in, a draft step of 10 ms, and 1 s until the reference tier is complete."""
    usual: dict[str, Any] = {
        "part": 0,
        "held": 0,
        "reference": 1,
        "parts": 2,
        "layers": 8,
        "anchor_ready": True,
        "can_draft": True,
        "checked_part": 0,
        "max_tokens": 64,
        "bytes_left": 1000,
        "bytes_per_second": 1000,
        "draft_s": 0.01,
    }
    return Snapshot(**{**usual, **fields})


BOTH = pytest.mark.parametrize("policy", [LayerReady(), Ladder(worth=frozenset())], ids=["layer-ready", "ladder"])


@BOTH
def test_drafts_as_long_as_the_pass_can_still_end_with_the_last_layer(policy: Policy) -> None:
    assert policy.decide(snapshot(drafted=4)) is Action.DRAFT
    # A draft of 10 ms and a pass over five drafts, 17.5 ms, do not fit into 25 ms.
    assert policy.decide(snapshot(drafted=4, bytes_left=25, layers_ready=1)) is Action.VERIFY
    assert policy.decide(snapshot(drafted=4, bytes_left=30, layers_ready=1)) is Action.DRAFT


@BOTH
def test_a_measured_pass_counts_more_than_a_guess(policy: Policy) -> None:
    assert policy.decide(snapshot(drafted=4, bytes_left=100, pass_s=0.2, layers_ready=1)) is Action.VERIFY


@BOTH
def test_nothing_is_verified_before_the_first_layer_is_there(policy: Policy) -> None:
    assert policy.decide(snapshot(drafted=24)) is Action.WAIT
    assert policy.decide(snapshot(drafted=24, layers_ready=1)) is Action.VERIFY
    assert policy.decide(Snapshot(max_tokens=64)) is Action.WAIT


@BOTH
def test_without_a_measured_rate_drafting_goes_on_until_the_cap(policy: Policy) -> None:
    assert policy.decide(snapshot(drafted=23, bytes_per_second=0, layers_ready=3)) is Action.DRAFT


@BOTH
def test_a_pass_that_waits_drafts_on_only_if_its_next_layer_is_a_step_away(policy: Policy) -> None:
    # Four layers are to come: 100 ms, 25 each; or 20 ms, 5 each.
    assert policy.decide(snapshot(verifying=True, layers_ready=4, bytes_left=100)) is Action.DRAFT
    assert policy.decide(snapshot(verifying=True, layers_ready=4, bytes_left=20)) is Action.WAIT
    assert policy.decide(snapshot(verifying=True, layers_ready=4, bytes_left=100, drafted=24)) is Action.WAIT


@BOTH
def test_with_the_reference_tier_there_every_step_verifies(policy: Policy) -> None:
    assert policy.decide(snapshot(part=1, reference_ready=True, layers_ready=8, bytes_left=0)) is Action.VERIFY


@BOTH
def test_a_transfer_of_anchors_alone_is_drafted_to_the_cap(policy: Policy) -> None:
    alone = {"reference": -1, "parts": 1, "bytes_left": 0}
    assert policy.decide(snapshot(**alone)) is Action.DRAFT
    assert policy.decide(snapshot(**alone, drafted=24)) is Action.WAIT


def test_a_ladder_refines_at_a_new_part_if_that_leaves_time_for_the_pass() -> None:
    rung: dict[str, Any] = {"reference": 3, "parts": 4, "part": 1, "drafted": 10}
    ladder = Ladder()
    assert ladder.decide(snapshot(**rung)) is Action.REFINE
    assert ladder.decide(snapshot(**rung, checked_part=1)) is Action.DRAFT
    assert ladder.decide(snapshot(**rung, bytes_left=45)) is Action.DRAFT  # Two passes are 50 ms.
    assert ladder.decide(snapshot(**{**rung, "drafted": 3})) is Action.DRAFT
    assert ladder.decide(snapshot(**rung, verifying=True, layers_ready=1)) is Action.DRAFT


def test_a_ladder_takes_the_rungs_that_it_is_told() -> None:
    rung: dict[str, Any] = {"reference": 3, "parts": 4, "drafted": 10}
    ladder = Ladder(worth=frozenset({2}))
    assert ladder.decide(snapshot(**rung, part=1)) is Action.DRAFT
    assert ladder.decide(snapshot(**rung, part=2)) is Action.REFINE


def test_a_ladder_may_hold_more_drafts_the_finer_they_were_checked() -> None:
    rung: dict[str, Any] = {"reference": 3, "parts": 4, "part": 1, "drafted": 30}
    assert Ladder().decide(snapshot(**rung, checked_part=1)) is Action.DRAFT
    assert Ladder(rungs=2, worth=frozenset()).decide(snapshot(**rung, checked_part=0)) is Action.WAIT
