"""What an interface is told, by release policy."""

from __future__ import annotations

import pytest

from lynx.policies import MarginGated, Provisional, Release, Tier, VerifiedOnly
from lynx.runtime import (
    Arrived,
    Committed,
    Confirmed,
    Done,
    Drafted,
    Event,
    RolledBack,
    Shown,
    Started,
    TakenBack,
    released,
)

DONE = Done(tokens=(), committed=0, verified=True, tier=Tier.RESIDUAL, drafted=0, accepted=0, rollbacks=0)

# Four drafts, of which the verifier confirms two; then two that a rung puts right; then the end.
EVENTS: list[Event] = [
    Started(1),
    Arrived(1, 0.2),
    *(Drafted(t, margin) for t, margin in ((2, 5.0), (3, 0.5), (4, 5.0), (5, 5.0))),
    RolledBack(2),
    Committed((2, 3, 14), 2),
    DONE,
]


def test_verified_only_shows_nothing_that_could_be_taken_back() -> None:
    assert list(released(EVENTS, VerifiedOnly())) == [Shown((1,), True), Shown((2, 3, 14), True), DONE]


def test_provisional_shows_every_draft_at_once() -> None:
    assert list(released(EVENTS, Provisional())) == [
        Shown((1,), True),
        *(Shown((t,), False) for t in (2, 3, 4, 5)),
        TakenBack(2),
        Confirmed(2),
        Shown((14,), True),
        DONE,
    ]


def test_margin_gated_shows_drafts_up_to_the_first_close_call() -> None:
    assert list(released(EVENTS, MarginGated(2.0))) == [
        Shown((1,), True),
        Shown((2,), False),
        Confirmed(1),
        Shown((3, 14), True),
        DONE,
    ]


def test_what_a_rung_puts_right_is_taken_back_and_shown_anew() -> None:
    events: list[Event] = [
        Started(1),
        Drafted(2),
        Drafted(3),
        RolledBack(1),
        Drafted(13),
        Committed((2, 13, 4), 2),
        DONE,
    ]
    assert list(released(events, Provisional()))[3:] == [
        TakenBack(1),
        Shown((13,), False),
        Confirmed(2),
        Shown((4,), True),
        DONE,
    ]


def test_drafts_made_while_the_pass_ran_stay_provisional() -> None:
    events: list[Event] = [Started(1), Drafted(2), Drafted(3), Committed((2,), 1), Committed((3, 4), 1), DONE]
    assert list(released(events, Provisional()))[3:] == [Confirmed(1), Confirmed(1), Shown((4,), True), DONE]


@pytest.mark.parametrize("release", [VerifiedOnly(), Provisional(), MarginGated(1.0)])
def test_what_is_shown_and_not_taken_back_is_the_text(release: Release) -> None:
    text: list[int] = []
    for step in released(EVENTS, release):
        if isinstance(step, Shown):
            text += step.tokens
        elif isinstance(step, TakenBack):
            del text[-step.count :]
    assert text == [1, 2, 3, 14]


def test_a_margin_that_would_release_everything_by_mistake_is_refused() -> None:
    for margin in (float("nan"), -1.0):
        with pytest.raises(ValueError, match="0 logits or more"):
            MarginGated(margin)
