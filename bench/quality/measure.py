"""The measurement: one teacher-forced pass over the same tokens on the bf16 cache and on each coded one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from torch import Tensor

from lynx import Codec

from .cached_model import CachedModel
from .choices import Choice, Shape, bits_per_value
from .coding import CodedCache


@dataclass(frozen=True, slots=True)
class Score:
    """Means over one text's tokens, and the anchor's size in bits a value, all that is sent included.

    `agreement` is the fraction of positions at which both caches make the same token the most likely one;
    `kl` is KL(bf16 || choice) of the next token's distribution, in nats.
    """

    agreement: float
    kl: float
    bits_per_value: float


@dataclass(frozen=True, slots=True)
class Mean:
    """Over texts, which are equally long. `error` is the mean's standard error, NaN for a single text."""

    value: float
    error: float

    @staticmethod
    def of(values: Sequence[float]) -> Mean:
        """Of one value a text."""
        error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
        return Mean(fmean(values), error)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One choice's scores, a text each."""

    choice: Choice
    scores: Sequence[Score]

    @property
    def agreement(self) -> Mean:
        """Of `Score.agreement`."""
        return Mean.of([score.agreement for score in self.scores])

    @property
    def kl(self) -> Mean:
        """Of `Score.kl`."""
        return Mean.of([score.kl for score in self.scores])

    @property
    def bits_per_value(self) -> float:
        """The same for all texts of one length."""
        return self.scores[0].bits_per_value

    def kl_above(self, other: Outcome) -> Mean:
        """The KL's excess over the other's on the same texts: its error has no part of how texts differ."""
        return Mean.of([mine.kl - its.kl for mine, its in zip(self.scores, other.scores, strict=True)])


def score_text(
    model: CachedModel, codec: Codec, window: Sequence[int], context: int, choices: Sequence[Choice]
) -> Iterator[tuple[Choice, Score]]:
    """Score each choice on a window: `context` tokens to prefill, the rest to be predicted.

    Raises `ValueError` for a window that is longer than the model allows.
    """
    model.check_positions(len(window))
    layers = model.prefill(window[:context])
    following = window[context:]
    shapes: list[Shape] = [(keys.shape[0], keys.shape[1], keys.shape[2]) for keys, _ in layers]
    reference = Reference(model.log_probabilities(layers, context, following))
    coded = CodedCache(codec, layers)
    for choice in choices:
        agreement, kl = reference.compare(model.log_probabilities(coded.anchor(choice), context, following))
        yield choice, Score(agreement, kl, bits_per_value(shapes, choice))


class Reference:
    """Log-probabilities [tokens, vocabulary] to compare others with."""

    def __init__(self, log_probabilities: Tensor) -> None:
        self._log_probabilities = log_probabilities
        self._probabilities = log_probabilities.exp()
        self._likeliest = log_probabilities.argmax(dim=-1)

    def compare(self, other: Tensor) -> tuple[float, float]:
        """The agreement with `other`, and KL(this || other), means over the tokens."""
        same = self._likeliest == other.argmax(dim=-1)
        kl = (self._probabilities * (self._log_probabilities - other)).sum(dim=-1)
        return same.double().mean().item(), kl.mean().item()
