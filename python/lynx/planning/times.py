"""When tokens are there: the model of docs/theory.md, in expected values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lynx.planning.acceptance import expected_accepted, expected_refined
from lynx.planning.conditions import Choice, Conditions
from lynx.planning.parts import Arrivals, acceptance_by_part, coding_of, part_bytes

ANCHORS = ((4, 2), (5, 3), (6, 4), (7, 5))
"""Worth a thought: K is worth two planes more than V (docs/quality.md)."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of a request; seconds from the start of its transfer."""

    first_provisional_s: float
    """To the first token that can be shown, verified or not."""
    first_verified_s: float
    accepted: float
    """Drafts that the pass commits which gives the first verified token, together with that token."""
    step_s: float

    def verified_s(self, tokens: int) -> float:
        """To `tokens` verified ones."""
        return self.first_verified_s + max(tokens - 1 - self.accepted, 0.0) * self.step_s

    def mean_verified_s(self, tokens: int) -> float:
        """The mean over the first `tokens`: when a token is verified."""
        return sum(self.verified_s(k) for k in range(1, tokens + 1)) / tokens


def forecast(conditions: Conditions, choice: Choice, *, layer_ready: bool = True, draft_cap: int = 64) -> Forecast:
    """What a policy that makes no mistake gets out of a choice; with a ladder it refines where that pays.

    Without `layer_ready` the verifying pass starts when the whole reference tier is there, as the paper's does. Needs
    a bandwidth and a step time in the conditions.
    """
    coding = coding_of(choice, exact=conditions.exact)
    arrivals = Arrivals(part_bytes(conditions.shapes, conditions.context_tokens, coding), conditions.bytes_per_second)
    reference = coding.parts - 1
    layers, decode_s = len(conditions.shapes), conditions.layer_decode_s
    anchor_s = arrivals.part_at(0) + decode_s
    drafts = _Drafts(conditions, choice, arrivals, reference, layer_ready, anchor_s)
    if choice.draft:
        drafts.run(draft_cap)
    begin = drafts.now if drafts.drafted else 0.0
    pass_s = conditions.pass_s(drafts.drafted + 1)
    if layer_ready:
        ready = (arrivals.layer_at(reference, layer) for layer in range(layers))
        verified_s = pass_end(ready, begin, pass_s / layers + decode_s)
    else:
        late_decode_s = decode_s * (layers if choice.draft else 1)
        verified_s = max(begin, arrivals.part_at(reference)) + late_decode_s + pass_s
    shown_s = anchor_s + conditions.step_s if drafts.drafted else verified_s
    return Forecast(min(shown_s, verified_s), verified_s, drafts.right, conditions.step_s)


def pass_end(ready: Iterable[float], begin: float, layer_s: float) -> float:
    """A pass that waits for each layer: F_l = max(F_(l-1), R_l) + c_l."""
    end = begin
    for at in ready:
        end = max(end, at) + layer_s
    return end


class _Drafts:
    """Drafting in the time that the transfer leaves, in expected values."""

    def __init__(
        self,
        conditions: Conditions,
        choice: Choice,
        arrivals: Arrivals,
        reference: int,
        layer_ready: bool,
        anchor_s: float,
    ) -> None:
        self._conditions = conditions
        self._reference = reference
        self._acceptance = acceptance_by_part(conditions, choice)
        self._part_at = [arrivals.part_at(part) for part in range(reference + 1)]
        self._layer_ready = layer_ready
        self._part = 0
        self._all_right = 1.0  # the probability of it
        self.now = anchor_s
        self.drafted = 0
        self.right = 0.0  # of the drafts, in the mean, before the first wrong one

    def run(self, draft_cap: int) -> None:
        while True:
            rung = max(part for part, at in enumerate(self._part_at) if part == 0 or at <= self.now)
            if rung >= self._reference:
                return
            if rung > self._part and self._refine(rung):
                continue
            if self.drafted < draft_cap and self._time_for(1) >= 1:
                self._draft()
                continue
            coming = self._part_at[rung + 1]
            if rung + 1 == self._reference:
                return
            self.now = max(self.now, coming)

    def _time_for(self, at_least: int, used_s: float = 0.0) -> int:
        """How many drafts fit before the pass has to begin."""
        c = self._conditions
        pass_s = c.pass_s(self.drafted + at_least + 1) if self._layer_ready else 0.0
        left = self._part_at[self._reference] - self.now - used_s - pass_s
        return max(int(left / (c.step_s + (c.token_s if self._layer_ready else 0.0))), 0)

    def _draft(self) -> None:
        self.now += self._conditions.step_s
        self.drafted += 1
        self._all_right *= self._acceptance[self._part]
        self.right += self._all_right

    def _refine(self, rung: int) -> bool:
        coarse, fine = self._acceptance[self._part], self._acceptance[rung]
        cost = self._conditions.pass_s(self.drafted + 1) + self._conditions.layer_decode_s * len(
            self._conditions.shapes
        )
        goes_on = self._time_for(1, cost)
        gain = expected_refined(self.drafted, coarse, fine, goes_on) - expected_accepted(
            self.drafted + self._time_for(0), coarse
        )
        if not self.drafted or gain <= 0 or self.now + cost > self._part_at[self._reference]:
            return False
        self.now += cost
        corrected = max(fine - coarse, 0.0) / (1 - coarse) if coarse < 1 else 1.0
        self._all_right = self._all_right * fine + (1 - self._all_right) * corrected
        self.drafted = round(self.right) + 1
        self.right += self._all_right
        self._part = rung
        return True


def best_anchor(conditions: Conditions) -> tuple[int, int]:
    """The anchor width of `ANCHORS` with the earliest verified tokens, in the mean over all that are wanted."""
    return min(ANCHORS, key=lambda bits: forecast(conditions, Choice(bits)).mean_verified_s(conditions.max_tokens))
