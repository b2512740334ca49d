"""Sampling from Python: arrays, errors, values, and the same choice as transformers' own processors."""

from __future__ import annotations

import math
from typing import Any

import pytest

import lynx

np = pytest.importorskip("numpy", reason="numpy makes the logits")


def logits_of(size: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)


def test_greedy_gives_the_largest_and_its_distance() -> None:
    sampled = lynx.Sampler().sample(np.array([1, 4, 3.5], np.float32), 0, [])
    assert (sampled.token, sampled.margin) == (1, 0.5)
    assert repr(sampled) == "Sampled(token=1, margin=0.5)"


def test_a_sampling_is_a_value() -> None:
    a = lynx.Sampling(temperature=0.5, top_k=3, seed=2**64 - 1)
    assert a == lynx.Sampling(temperature=0.5, top_k=3, seed=2**64 - 1)
    assert hash(a) == hash(lynx.Sampling(temperature=0.5, top_k=3, seed=2**64 - 1))
    assert a != lynx.Sampling(temperature=0.5, top_k=3)
    assert a != "a"
    assert "top_k=3" in repr(a)
    assert lynx.Sampler(a).sampling == a
    with pytest.raises(AttributeError):
        a.top_k = 4  # type: ignore[misc]


def test_rows_are_sampled_as_one_by_one() -> None:
    rows = np.stack([logits_of(300, i) for i in range(4)])
    history = [5, 6, 7, 8, 9, 10]
    sampler = lynx.Sampler(lynx.Sampling(temperature=1, top_k=40, repetition_penalty=1.3, seed=4))
    expected = [sampler.sample(rows[i], 20 + i, history[: 3 + i]) for i in range(4)]
    assert sampler.sample_rows(rows, 20, history) == expected
    assert sampler.sample_rows(rows, 20, np.array(history, np.int32)) == expected
    wide = np.concatenate([rows, rows], axis=1)
    assert sampler.sample_rows(wide[:, :300], 20, history) == expected
    with pytest.raises(lynx.InvalidArgument, match="4 rows"):
        sampler.sample_rows(rows, 20, [1, 2])


@pytest.mark.parametrize(
    "logits", [np.zeros(4), np.zeros((2, 4), np.float32), np.zeros(8, np.float32)[::2], [1.0, 2.0]]
)
def test_what_are_no_logits_is_refused_with_words(logits: Any) -> None:
    with pytest.raises(lynx.InvalidArgument, match="fp32"):
        lynx.Sampler().sample(logits, 0, [])


def test_a_broken_model_and_a_strange_history_are_refused() -> None:
    logits = logits_of(50)
    with pytest.raises(lynx.InvalidArgument, match="history"):
        lynx.Sampler().sample(logits, 0, "words")
    with pytest.raises(lynx.InvalidArgument, match="token 50"):
        lynx.Sampler(lynx.Sampling(repetition_penalty=2)).sample(logits, 0, [50])
    logits[7] = math.nan
    with pytest.raises(lynx.InvalidArgument, match="token 7"):
        lynx.Sampler().sample(logits, 0, [])
    with pytest.raises(lynx.InvalidArgument, match="top_p"):
        lynx.Sampling(top_p=0)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"temperature": 1.0, "top_k": 8},
        {"temperature": 1.5, "top_p": 0.8},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 0.9, "repetition_penalty": 1.4},
        {"temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
    ],
)
def test_what_is_kept_and_how_likely_agrees_with_transformers(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="transformers' processors need torch")
    processors = pytest.importorskip("transformers.generation.logits_process", reason="the reference is transformers")
    logits = torch.from_numpy(logits_of(64, 11))
    history = [1, 2, 3, 3, 60]
    scores = logits[None].clone()
    ids = torch.tensor([history])
    for name, option in (
        ("RepetitionPenaltyLogitsProcessor", "repetition_penalty"),
        ("TemperatureLogitsWarper", "temperature"),
        ("TopKLogitsWarper", "top_k"),
        ("TopPLogitsWarper", "top_p"),
        ("MinPLogitsWarper", "min_p"),
    ):
        if option in options:
            scores = getattr(processors, name)(options[option])(ids, scores)
    probabilities = scores[0].double().softmax(-1)

    sampler = lynx.Sampler(lynx.Sampling(seed=3, **options))
    draws = 40_000
    count = torch.zeros(64, dtype=torch.float64)
    for position in range(draws):
        count[sampler.sample(logits, position, history).token] += 1
    assert not count[probabilities == 0].any(), "what transformers cuts off never comes"
    expected = probabilities * draws
    likely = expected > 20
    assert (count[likely] > 0).all(), "what transformers keeps comes"
    # Six standard deviations; the seed is fixed.
    assert ((count - expected).abs()[likely] < 6 * expected[likely].sqrt()).all()
