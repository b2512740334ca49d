"""Adaptive: what it chooses, and how it goes by what it measures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lynx.policies import Action, Adaptive, Choice, Conditions, choose
from tests.python.policies.test_layer_ready import snapshot

CONDITIONS = Conditions(((3, 64),) * 30, 2048, 64, bytes_per_second=31e6, step_s=0.04, token_s=0.006)


def adaptive(**changes: Any) -> Adaptive:
    policy = Adaptive()
    choose(policy, replace(CONDITIONS, **changes))
    return policy


def test_it_does_not_speculate_where_the_cache_is_there_within_a_step() -> None:
    assert adaptive(bytes_per_second=5e9 / 8).choice == Choice((8, 8), draft=False)
    assert adaptive().choice.draft


def test_it_does_not_speculate_where_a_token_in_a_pass_costs_a_step() -> None:
    """On a link that leaves time for one draft."""
    slow = adaptive(shapes=((1, 64),) * 6, context_tokens=512, bytes_per_second=6e6, step_s=0.05, token_s=0.045)
    assert not slow.choice.draft


def test_it_does_not_speculate_where_drafts_are_wrong() -> None:
    assert not adaptive(acceptance=dict.fromkeys(range(2, 8), 0.01)).choice.draft


def test_it_takes_a_ladder_where_there_is_time_for_many_drafts() -> None:
    assert adaptive(bytes_per_second=50e6 / 8).choice.rungs > 1


def test_without_a_known_rate_it_asks_for_the_default_and_drafts() -> None:
    policy = adaptive(bytes_per_second=0)
    assert policy.choice == Choice()
    assert policy.decide(snapshot(bytes_per_second=0)) is Action.DRAFT


def test_it_works_without_having_been_asked_to_choose() -> None:
    assert Adaptive().decide(snapshot()) is Action.DRAFT
    assert Adaptive().decide(snapshot(bytes_left=10, layers_ready=1, drafted=3)) is Action.VERIFY


def test_if_it_has_chosen_not_to_draft_it_does_not() -> None:
    policy = adaptive(bytes_per_second=5e9 / 8)
    assert policy.decide(snapshot()) is Action.WAIT
    assert policy.decide(snapshot(layers_ready=1)) is Action.VERIFY


def test_it_stops_drafting_when_a_draft_is_unlikely_to_be_accepted() -> None:
    policy = adaptive(acceptance=dict.fromkeys(range(2, 8), 0.5))
    policy.choice = Choice()
    assert policy.decide(snapshot(drafted=3)) is Action.DRAFT
    assert policy.decide(snapshot(drafted=6)) is Action.WAIT  # 0.5^7 is under 2 %.


RUNG: dict[str, Any] = {"reference": 3, "parts": 4, "part": 1, "drafted": 20}


@pytest.mark.parametrize(("bytes_left", "action"), [(150, Action.REFINE), (60, Action.DRAFT)])
def test_it_refines_if_that_leaves_time_for_the_pass(bytes_left: int, action: Action) -> None:
    policy = adaptive(acceptance={3: 0.8, 4: 0.9, 5: 0.99, 6: 0.99, 7: 0.99})
    policy.choice = Choice((5, 3), rungs=3)
    assert policy.decide(snapshot(**RUNG, bytes_left=bytes_left)) is action


def test_it_does_not_refine_at_a_part_that_knows_no_better() -> None:
    policy = adaptive(acceptance=dict.fromkeys(range(2, 8), 0.9))
    policy.choice = Choice((5, 3), rungs=3)
    assert policy.decide(snapshot(**RUNG, bytes_left=150)) is Action.DRAFT


def test_it_goes_by_the_step_that_it_measures() -> None:
    """A pass over one more draft and a step took 86 ms by the conditions, and take half of it."""
    policy = adaptive()
    assert policy.decide(snapshot(draft_s=0.04, bytes_left=80, layers_ready=1)) is Action.VERIFY
    assert policy.decide(snapshot(draft_s=0.02, bytes_left=80, layers_ready=1)) is Action.DRAFT
