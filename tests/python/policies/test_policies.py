"""Policies are pure: a snapshot in, an action out."""

from __future__ import annotations

from pathlib import Path

import pytest

from lynx import Snapshot
from lynx.policies import Action, AnchorFirst, Blocking, PolicyError, Tier, load_policy

NOTHING = Snapshot(max_tokens=64)
ANCHOR = Snapshot(anchor_ready=True, can_draft=True, drafted=3, max_tokens=64)
ALL = Snapshot(anchor_ready=True, reference_ready=True, can_draft=True, drafted=3, max_tokens=64)


def test_anchor_first_waits_drafts_then_verifies() -> None:
    policy = AnchorFirst()
    assert [policy.decide(s) for s in (NOTHING, ANCHOR, ALL)] == [Action.WAIT, Action.DRAFT, Action.VERIFY]


def test_anchor_first_stops_at_its_cap_and_where_no_draft_is_possible() -> None:
    assert AnchorFirst(draft_cap=3).decide(ANCHOR) is Action.WAIT
    assert AnchorFirst().decide(Snapshot(anchor_ready=True, can_draft=False)) is Action.WAIT


def test_blocking_never_speculates() -> None:
    assert [Blocking().decide(s) for s in (NOTHING, ANCHOR, ALL)] == [Action.WAIT, Action.WAIT, Action.VERIFY]


def test_blocking_on_the_anchor_never_verifies() -> None:
    policy = Blocking(Tier.ANCHOR)
    assert [policy.decide(s) for s in (NOTHING, ANCHOR, ALL)] == [Action.WAIT, Action.DRAFT, Action.DRAFT]


def test_policies_are_found_by_name_and_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_policy("anchor-first") == AnchorFirst()
    (tmp_path / "my_policy.py").write_text("class Mine:\n    def decide(self, snapshot): return 1\n")
    monkeypatch.chdir(tmp_path)
    assert load_policy("my_policy:Mine").decide(NOTHING) == 1  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nonsense", "use one of blocking, anchor-first, layer-ready, ladder, deadline, adaptive"),
        ("no_such_module:P", "no_such_module"),
        ("lynx.policies:NoSuch", "NoSuch"),
        ("pathlib:Path", "no method decide"),
    ],
)
def test_a_policy_that_cannot_be_made_says_why(name: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        load_policy(name)
