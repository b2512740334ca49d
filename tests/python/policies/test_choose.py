"""Errors in a user's policy say where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from lynx import Snapshot
from lynx.policies import Action, Choice, Conditions, PolicyError, choose, load_policy

CONDITIONS = Conditions(((1, 64),), 16, 8)


class Chooser:
    """Gives what it was given, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def decide(self, snapshot: Snapshot) -> Action:
        return Action.WAIT

    def choose(self, conditions: Conditions) -> Choice:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def test_an_error_in_choose_is_a_policy_error_with_its_cause() -> None:
    cause = ZeroDivisionError("bandwidth")
    with pytest.raises(PolicyError, match=r"ZeroDivisionError.*bandwidth") as error:
        choose(Chooser(cause), CONDITIONS)
    assert error.value.__cause__ is cause
    assert cause.__traceback__ is not None


@pytest.mark.parametrize("answer", [None, (5, 3), Choice((9, 3)), Choice(rungs=0), Choice((5,)), Choice(rungs=8)])
def test_an_answer_that_is_no_choice_is_a_policy_error(answer: object) -> None:
    with pytest.raises(PolicyError, match="chose"):
        choose(Chooser(answer), CONDITIONS)


def test_a_policy_that_chooses_nothing_is_not_asked() -> None:
    assert choose(load_policy("anchor-first"), CONDITIONS) is None


def test_an_error_in_a_users_module_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_policy.py").write_text("class Mine:\n    def __init__(self): 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match="ZeroDivisionError") as error:
        load_policy("broken_policy:Mine")
    cause = error.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert cause.__traceback__ is not None
