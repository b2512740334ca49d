"""The measurement: one teacher-forced pass over the same tokens on the bf16 cache and on each coded one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lynx import Codec, Coding, PlaneLayout, TensorSpec
from lynx.engines.transformers import TransformersEngine

Layers = Sequence[tuple[Tensor, Tensor]]
"""(K, V) for each layer, bfloat16 [kv_heads, tokens, head_dim]."""

CodedLayers = Sequence[tuple[tuple[PlaneLayout, Tensor], tuple[PlaneLayout, Tensor]]]
"""The layout and the bytes of (K, V) for each layer."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cache to compare with the bf16 one: the first `planes` planes of K and of V."""

    coding: Coding
    planes: int


# The control: coded and decoded like the others, but without loss. Any difference is a fault of the measurement.
RAW = Candidate(Coding.RAW, 1)


def prefix(planes: int) -> Candidate:
    """The cache that is there once `planes` planes, the most significant first, have arrived."""
    return Candidate(Coding.PLANES, planes)


@dataclass(frozen=True, slots=True)
class Score:
    """Means over one text's tokens.

    `agreement` is the fraction of positions at which both caches make the same token the most likely one;
    `kl` is KL(bf16 || candidate) of the next token's distribution, in nats.
    """

    agreement: float
    kl: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One candidate's scores, a text each, and its size in bits a value, scales and zeros included."""

    candidate: Candidate
    bits_per_value: float
    scores: Sequence[Score]

    @property
    def agreement(self) -> float:
        """The mean over the texts, which are equally long."""
        return sum(score.agreement for score in self.scores) / len(self.scores)

    @property
    def kl(self) -> float:
        """The mean over the texts."""
        return sum(score.kl for score in self.scores) / len(self.scores)


def measure(
    engine: TransformersEngine,
    codec: Codec,
    windows: Sequence[Sequence[int]],
    context: int,
    candidates: Sequence[Candidate],
    on_text: Callable[[int], None] = lambda done: None,
) -> list[Outcome]:
    """Score every candidate on every window: `context` tokens to prefill, the rest to be predicted.

    `on_text` is called with the number of windows done after each. Raises `EngineError` for windows that are
    longer than the model allows.
    """
    scores: dict[Candidate, list[Score]] = {candidate: [] for candidate in candidates}
    for done, window in enumerate(windows, 1):
        for candidate, score in _score_text(engine, codec, window, context, candidates).items():
            scores[candidate].append(score)
        on_text(done)
    return [Outcome(c, bits_per_value(engine, context, c), scores[c]) for c in candidates]


def bits_per_value(engine: TransformersEngine, context: int, candidate: Candidate) -> float:
    """What a value of the whole cache costs on the wire, by the layout: planes, scales and zeros."""
    size = values = 0
    for heads, head_dim in engine.layers:
        layout = PlaneLayout(TensorSpec(heads, context, head_dim, coding=candidate.coding))
        planes = sum(layout.plane(index).bytes for index in range(candidate.planes))
        size += layout.scales.bytes + layout.zeros.bytes + planes
        values += heads * context * head_dim
    return 8 * size / values


def _score_text(
    engine: TransformersEngine,
    codec: Codec,
    window: Sequence[int],
    context: int,
    candidates: Sequence[Candidate],
) -> dict[Candidate, Score]:
    layers = engine.prefill(window[:context]).layers
    following = window[context:]
    engine.start(context, len(following))
    for index, rows in enumerate(layers):
        for target, source in zip(engine.prompt_rows(index), rows, strict=True):
            target.copy_(source)
    reference = _log_probabilities(engine, following)
    # Once for all prefixes: the anchor's width says where the anchor ends, not what the planes hold.
    coded = {coding: _encode(codec, layers, coding) for coding in {c.coding for c in candidates}}
    scores = {}
    for candidate in candidates:
        _decode(codec, coded[candidate.coding], candidate.planes, engine)
        scores[candidate] = compare(reference, _log_probabilities(engine, following))
    return scores


def compare(reference: Tensor, other: Tensor) -> Score:
    """Score log-probabilities [tokens, vocabulary] against those of the reference."""
    same = reference.argmax(dim=-1) == other.argmax(dim=-1)
    kl = (reference.exp() * (reference - other)).sum(dim=-1)
    return Score(same.double().mean().item(), kl.mean().item())


def _log_probabilities(engine: TransformersEngine, tokens: Sequence[int]) -> Tensor:
    """In double precision, so that a small KL is not lost in the sum over the vocabulary."""
    logits = engine.logits(tokens)
    engine.crop(len(tokens))
    return logits.double().log_softmax(dim=-1)


def _encode(codec: Codec, layers: Layers, coding: Coding) -> CodedLayers:
    def encode(source: Tensor) -> tuple[PlaneLayout, Tensor]:
        heads, tokens, head_dim = source.shape
        layout = PlaneLayout(TensorSpec(heads, tokens, head_dim, coding=coding))
        out = torch.empty(layout.bytes, dtype=torch.uint8)
        codec.encode(source, layout, out)
        return layout, out

    return [(encode(keys), encode(values)) for keys, values in layers]


def _decode(codec: Codec, coded: CodedLayers, planes: int, engine: TransformersEngine) -> None:
    """Into the rows that the engine's next pass reads."""
    for index, tensors in enumerate(coded):
        for target, (layout, source) in zip(engine.prompt_rows(index), tensors, strict=True):
            codec.decode(layout, source, planes, target)
