"""Deadline: verified tokens where they come in time, drafts where they do not."""

from __future__ import annotations

from dataclasses import replace

from lynx.policies import Action, Choice, Conditions, Deadline, choose
from tests.python.policies.test_layer_ready import snapshot

CONDITIONS = Conditions(((3, 64),) * 30, 2048, 64, bytes_per_second=31e6, step_s=0.04, token_s=0.006)
# The INT8 cache takes 0.8 s, the anchor 0.43 s.


def test_it_asks_for_all_planes_if_verified_tokens_come_in_time() -> None:
    assert choose(Deadline(ttft_s=1.0), CONDITIONS) == Choice((8, 8), draft=False)


def test_it_asks_for_the_widest_anchor_that_comes_in_time() -> None:
    widths = [choose(Deadline(ttft_s=t), CONDITIONS) for t in (0.75, 0.6, 0.5, 0.4)]
    assert [c.anchor_bits for c in widths if c] == [(7, 5), (6, 4), (5, 3), (4, 2)]


def test_it_asks_for_the_narrowest_where_none_comes_in_time() -> None:
    choice = choose(Deadline(ttft_s=0.01), CONDITIONS)
    assert choice is not None
    assert choice.anchor_bits == (4, 2)


def test_without_a_known_rate_it_asks_for_the_default() -> None:
    assert choose(Deadline(), replace(CONDITIONS, bytes_per_second=0)) == Choice()


def test_it_does_not_draft_if_the_reference_comes_in_time() -> None:
    # It is 0.2 s into the request, the reference is 1 s away.
    assert Deadline(ttft_s=2.0).decide(snapshot(elapsed_s=0.2)) is Action.WAIT
    assert Deadline(ttft_s=1.0).decide(snapshot(elapsed_s=0.2)) is Action.DRAFT


def test_it_drafts_what_the_targets_need_and_no_more() -> None:
    first = Deadline(ttft_s=0.5)
    assert first.decide(snapshot(elapsed_s=0.2, drafted=1)) is Action.WAIT
    # By 1.2 s there should be 1 + 0.7 / 0.1 tokens.
    every = Deadline(ttft_s=0.5, token_s=0.1)
    assert every.decide(snapshot(elapsed_s=0.2, drafted=7)) is Action.DRAFT
    assert every.decide(snapshot(elapsed_s=0.2, drafted=8)) is Action.WAIT


def test_its_pass_begins_as_late_as_lets_it_end_with_the_last_layer() -> None:
    assert Deadline(ttft_s=9).decide(snapshot(bytes_left=50, layers_ready=1)) is Action.WAIT
    assert Deadline(ttft_s=9).decide(snapshot(bytes_left=9, layers_ready=1)) is Action.VERIFY
    assert Deadline(ttft_s=9).decide(snapshot(reference_ready=True, layers_ready=8)) is Action.VERIFY
