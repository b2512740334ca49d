"""The measurement: one teacher-forced pass over the same tokens on the bf16 cache and on each coded one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch
from torch import Tensor

from lynx import Codec, PlaneLayout, TensorSpec
from lynx.engines.transformers import TransformersEngine
from lynx.transfer import RAW, CacheCoding

Layers = Sequence[tuple[Tensor, Tensor]]
"""(K, V) for each layer, bfloat16 [kv_heads, tokens, head_dim]."""

# What is measured is the anchor of each. The raw one is the control: coded and decoded like the others, but without
# loss, so that any difference is a fault of the measurement.
DEFAULT = CacheCoding()
CANDIDATES = (
    CacheCoding(key_anchor_bits=3, value_anchor_bits=3, sink_tokens=0),
    CacheCoding(key_anchor_bits=4, value_anchor_bits=4, sink_tokens=0),
    CacheCoding(key_anchor_bits=5, value_anchor_bits=3, sink_tokens=0),
    DEFAULT,
    CacheCoding(key_anchor_bits=5, value_anchor_bits=5, sink_tokens=0),
    CacheCoding(key_anchor_bits=8, value_anchor_bits=8, sink_tokens=0),
    RAW,
)


@dataclass(frozen=True, slots=True)
class Score:
    """Means over one text's tokens.

    `agreement` is the fraction of positions at which both caches make the same token the most likely one;
    `kl` is KL(bf16 || candidate) of the next token's distribution, in nats.
    """

    agreement: float
    kl: float


@dataclass(frozen=True, slots=True)
class Mean:
    """Over texts, which are equally long. `error` is the mean's standard error, NaN for a single text."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One candidate's scores, a text each, and its anchor's size in bits a value, all that is sent included."""

    candidate: CacheCoding
    bits_per_value: float
    scores: Sequence[Score]

    @property
    def agreement(self) -> Mean:
        """Of `Score.agreement`."""
        return _mean([score.agreement for score in self.scores])

    @property
    def kl(self) -> Mean:
        """Of `Score.kl`."""
        return _mean([score.kl for score in self.scores])


def _mean(values: Sequence[float]) -> Mean:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return Mean(fmean(values), error)


def measure(
    engine: TransformersEngine,
    codec: Codec,
    windows: Sequence[Sequence[int]],
    context: int,
    candidates: Sequence[CacheCoding],
    on_text: Callable[[int], None] = lambda done: None,
) -> list[Outcome]:
    """Score every candidate on every window: `context` tokens to prefill, the rest to be predicted.

    `on_text` is called with the number of windows done after each. Raises `EngineError` for windows that are
    longer than the model allows.
    """
    scores: dict[CacheCoding, list[Score]] = {candidate: [] for candidate in candidates}
    for done, window in enumerate(windows, 1):
        for candidate, score in _score_text(engine, codec, window, context, candidates).items():
            scores[candidate].append(score)
        on_text(done)
    return [Outcome(c, bits_per_value(engine, context, c), scores[c]) for c in candidates]


def bits_per_value(engine: TransformersEngine, context: int, candidate: CacheCoding) -> float:
    """What the anchor of a whole cache costs on the wire, by the layout: planes, scales, zeros and sinks."""
    size = values = 0
    for heads, head_dim in engine.layers:
        for layout in _layouts(heads, context, head_dim, candidate):
            size += layout.part(0).bytes
            values += heads * context * head_dim
    return 8 * size / values


def _score_text(
    engine: TransformersEngine,
    codec: Codec,
    window: Sequence[int],
    context: int,
    candidates: Sequence[CacheCoding],
) -> dict[CacheCoding, Score]:
    layers = engine.prefill(window[:context]).layers
    following = window[context:]
    engine.start(context, len(following))
    for index, rows in enumerate(layers):
        for target, source in zip(engine.prompt_rows(index), rows, strict=True):
            target.copy_(source)
    reference = _log_probabilities(engine, following)
    scores = {}
    for candidate in candidates:
        _fill_with_anchor(codec, layers, candidate, engine)
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


def _layouts(heads: int, tokens: int, head_dim: int, how: CacheCoding) -> tuple[PlaneLayout, PlaneLayout]:
    """Of K and of V."""

    def layout(anchor_bits: int) -> PlaneLayout:
        return PlaneLayout(
            TensorSpec(heads, tokens, head_dim, coding=how.coding, anchor_bits=anchor_bits, sink_tokens=how.sink_tokens)
        )

    return layout(how.key_anchor_bits), layout(how.value_anchor_bits)


def _fill_with_anchor(codec: Codec, layers: Layers, how: CacheCoding, engine: TransformersEngine) -> None:
    """Code each layer and decode its anchor alone into the rows that the engine's next pass reads."""
    for index, tensors in enumerate(layers):
        heads, tokens, head_dim = tensors[0].shape
        layouts = _layouts(heads, tokens, head_dim, how)
        for target, source, layout in zip(engine.prompt_rows(index), tensors, layouts, strict=True):
            coded = torch.empty(layout.bytes, dtype=torch.uint8)
            codec.encode(source, layout, coded)
            coded[layout.part(0).bytes :] = 0  # What has not arrived cannot help.
            codec.decode(layout, coded, layout.planes_through(0), target)
