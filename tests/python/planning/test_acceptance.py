"""The expected number of accepted drafts, by formula and by throwing dice."""

from __future__ import annotations

import random

import pytest

from lynx.planning import DEFAULT_ACCEPTANCE, acceptance_at, expected_accepted, expected_refined


@pytest.mark.parametrize("probability", [0.0, 0.5, 0.95, 1.0])
def test_accepted_drafts_are_the_sum_of_the_chances_that_all_are_right(probability: float) -> None:
    chances = [probability**i for i in range(1, 9)]
    assert expected_accepted(8, probability) == pytest.approx(sum(chances))


def test_with_the_verifiers_token_they_are_leviathans_formula() -> None:
    assert 1 + expected_accepted(5, 0.8) == pytest.approx((1 - 0.8**6) / (1 - 0.8))


def test_a_refined_draft_goes_on_from_the_token_put_right() -> None:
    """Each position draws a number; a part is right where it is below the part's probability."""
    dice = random.Random(1)
    coarse, fine, drafts, then = 0.8, 0.95, 10, 6

    def run() -> int:
        draws = [dice.random() for _ in range(drafts + 1 + then)]
        kept = next((i for i in range(drafts) if draws[i] >= coarse), drafts)
        # The pass gives its own token at `kept`, and from there the finer part drafts on.
        behind = draws[kept : kept + 1 + then]
        return kept + next((i for i, draw in enumerate(behind) if draw >= fine), len(behind))

    mean = sum(run() for _ in range(20_000)) / 20_000
    assert expected_refined(drafts, coarse, fine, then) == pytest.approx(mean, rel=0.03)


def test_between_two_widths_acceptance_lies_between_theirs() -> None:
    assert acceptance_at({4: 0.9, 6: 1.0}, 5) == pytest.approx(0.95)
    assert acceptance_at({4: 0.9}, 2) == pytest.approx(0.45)
    assert acceptance_at({4: 0.9}, 7) == 0.9
    widths = [acceptance_at(DEFAULT_ACCEPTANCE, bits / 2) for bits in range(2, 16)]
    assert widths == sorted(widths)


@pytest.mark.parametrize("acceptance", [{}, {4: 1.5}, {4: -0.1}])
def test_acceptance_that_is_none_is_refused(acceptance: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        acceptance_at(acceptance, 4)
