"""A cost model decides: the anchor's width, the rungs, how far to draft, and whether to draft at all."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from lynx._core import Snapshot
from lynx.planning import (
    ANCHORS,
    WHOLE,
    Choice,
    Conditions,
    acceptance_by_part,
    expected_accepted,
    expected_refined,
    forecast,
)
from lynx.policies.base import Action, Tier
from lynx.policies.estimates import TOKEN_COST, draft_on, seconds_left

CANDIDATES = (WHOLE, *(Choice(bits, rungs) for bits, rungs in itertools.product(ANCHORS, (1, 2, 3))))


@dataclass(slots=True)
class Adaptive:
    """Chooses before the transfer what the model of docs/theory.md says is fastest, then goes by what it measures.

    What it minimizes is the mean time at which a token is verified, over all that are wanted, plus
    `provisional_weight` of the time to the first one that can be shown and stays. Where drafting gains nothing, it asks
    for all planes layer by layer and verifies as they come. A draft is worth its cost while the chance that it is
    accepted is `min_gain` or more.

    It remembers what it has chosen: one object serves one request at a time.
    """

    draft_cap: int = 64
    min_gain: float = 0.02
    provisional_weight: float = 0.1
    waits_for: Tier = Tier.ANCHOR
    choice: Choice = field(default_factory=Choice, init=False)
    _conditions: Conditions = field(default_factory=lambda: Conditions((), 0, 0), init=False, repr=False)

    def choose(self, conditions: Conditions) -> Choice:
        """The best of all anchors and rungs, and of not speculating; the default where a rate is not known."""
        self._conditions, self.choice = conditions, Choice()
        if conditions.bytes_per_second and conditions.step_s:
            self.choice = min(CANDIDATES, key=self._cost)
        return self.choice

    def _cost(self, choice: Choice) -> float:
        expected = forecast(self._conditions, choice, draft_cap=self.draft_cap)
        # A first draft that is wrong shows nothing: the first verified token does.
        stays = acceptance_by_part(self._conditions, choice)[0]
        first_s = stays * expected.first_provisional_s + (1 - stays) * expected.first_verified_s
        return expected.mean_verified_s(self._conditions.max_tokens) + self.provisional_weight * first_s

    def decide(self, snapshot: Snapshot) -> Action:
        """Choose the next step."""
        s = snapshot
        drafting = self.choice.draft and s.can_draft and s.drafted < self.draft_cap and self._worth_drafting(s)
        if s.verifying:
            return Action.DRAFT if drafting and draft_on(s) else Action.WAIT
        if s.reference_ready:
            return Action.VERIFY
        if self._worth_refining(s):
            return Action.REFINE
        if drafting and seconds_left(s) > self._step_s(s) + self._pass_s(s, s.drafted + 1):
            return Action.DRAFT
        return Action.VERIFY if s.layers_ready else Action.WAIT

    def _step_s(self, s: Snapshot) -> float:
        return s.draft_s or self._conditions.step_s

    def _token_s(self, s: Snapshot) -> float:
        known = self._conditions
        cost = known.token_s / known.step_s if known.step_s else TOKEN_COST
        return cost * self._step_s(s)

    def _pass_s(self, s: Snapshot, drafts: int) -> float:
        return self._step_s(s) + drafts * self._token_s(s)

    def _acceptance(self, s: Snapshot, part: int) -> float:
        by_part = acceptance_by_part(self._conditions, self.choice)
        return by_part[min(max(part, 0), len(by_part) - 1)]

    def _worth_drafting(self, s: Snapshot) -> bool:
        """Against the last layer's share of what one more token costs the pass; the rest is hidden by the transfer."""
        chance = self._acceptance(s, s.checked_part) ** (s.drafted + 1)
        return chance * self._step_s(s) >= max(self.min_gain * self._step_s(s), self._token_s(s) / max(s.layers, 1))

    def _worth_refining(self, s: Snapshot) -> bool:
        """Does a pass at the finer part leave more drafts right than drafting on in its time?"""
        if not s.drafted or not s.checked_part < s.part < s.reference:
            return False
        coarse, fine = self._acceptance(s, s.checked_part), self._acceptance(s, s.part)
        pass_s = self._pass_s(s, s.drafted) + self._conditions.layer_decode_s * s.layers
        left_s = seconds_left(s) - self._pass_s(s, s.drafted)
        if left_s < pass_s:
            return False
        refined = expected_refined(s.drafted, coarse, fine, self._fits(s, left_s - pass_s))
        return refined > expected_accepted(s.drafted + self._fits(s, left_s), coarse)

    def _fits(self, s: Snapshot, seconds: float) -> int:
        """Drafts that can be made in the time, with what each adds to the pass."""
        room = self.draft_cap - s.drafted
        a_draft_s = self._step_s(s) + self._token_s(s)
        return room if math.isinf(seconds) or not a_draft_s else min(int(seconds / a_draft_s), room)
