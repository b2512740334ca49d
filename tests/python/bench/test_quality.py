"""The quality bench on a tiny random model: what must hold whatever the model."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # Benches are run from the checkout, never installed.

from bench.quality.__main__ import main  # noqa: E402
from bench.quality.cached_model import CachedModel  # noqa: E402
from bench.quality.choices import (  # noqa: E402
    CANDIDATES,
    COARSE,
    DEFAULT,
    FINALISTS,
    GRID,
    RAW,
    Axes,
    Choice,
    Thin,
    bits_per_value,
    of_coding,
)
from bench.quality.coding import CodedCache  # noqa: E402
from bench.quality.measure import Outcome, Reference, Score, score_text  # noqa: E402
from bench.quality.report import Result, best_line, checks, grid_checks, to_json  # noqa: E402
from bench.quality.store import Setting, Store  # noqa: E402
from bench.quality.texts import windows  # noqa: E402
from lynx import Codec, PlaneLayout, TensorSpec  # noqa: E402
from lynx.engines.transformers import TransformersEngine  # noqa: E402
from lynx.transfer import CacheCoding  # noqa: E402

VOCABULARY = 258
CONTEXT = 80
WIDTHS = [Choice(bits, bits) for bits in range(1, 9)]
WINDOWS = [[(step * i * i + 3 * i + 1) % VOCABULARY for i in range(CONTEXT + 24)] for step in (7, 11)]


@pytest.fixture(scope="module")
def model() -> Any:
    """Random weights, large enough that greedy choices are far from ties."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        initializer_range=0.3,
        eos_token_id=None,
        bos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def saved(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a tokenizer of one token a byte, in transformers' format."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate([*alphabet, "<|end|>"])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>").save_pretrained(folder)
    return folder


def measure(model: Any, choices: list[Choice]) -> dict[Choice, Outcome]:
    scores: dict[Choice, list[Score]] = {choice: [] for choice in choices}
    for window in WINDOWS:
        for choice, score in score_text(CachedModel(model), Codec.best(), window, CONTEXT, choices):
            scores[choice].append(score)
    return {choice: Outcome(choice, scores[choice]) for choice in choices}


@pytest.fixture(scope="module")
def outcomes(model: Any) -> dict[Choice, Outcome]:
    return measure(model, [*WIDTHS, DEFAULT, Choice(5, 3, CONTEXT), RAW])


def agreements_and_kl(outcome: Outcome) -> list[tuple[float, float]]:
    return [(score.agreement, score.kl) for score in outcome.scores]


def test_the_raw_cache_makes_no_difference_at_all(outcomes: dict[Choice, Outcome]) -> None:
    assert outcomes[RAW].scores == [Score(1.0, 0.0, 16)] * len(WINDOWS)


def test_the_cache_of_all_planes_agrees_nearly_fully(outcomes: dict[Choice, Outcome]) -> None:
    assert outcomes[Choice(8, 8)].agreement.value >= 0.95
    assert 0 < outcomes[Choice(8, 8)].kl.value < 0.01


def test_kl_falls_with_every_plane(outcomes: dict[Choice, Outcome]) -> None:
    values = [outcomes[width].kl.value for width in WIDTHS]
    assert values == sorted(values, reverse=True)
    assert values[0] > 100 * values[-1]
    assert outcomes[WIDTHS[0]].agreement.value < outcomes[WIDTHS[7]].agreement.value


def test_with_all_tokens_as_sinks_the_anchor_is_all_there_is(outcomes: dict[Choice, Outcome]) -> None:
    assert agreements_and_kl(outcomes[Choice(5, 3, CONTEXT)]) == agreements_and_kl(outcomes[Choice(8, 8)])


def test_bits_a_value_count_all_that_is_sent(outcomes: dict[Choice, Outcome]) -> None:
    for bits, width in enumerate(WIDTHS, 1):
        assert outcomes[width].bits_per_value == bits + 2 * 16 / 16  # Two fp16 for 16 values.
    # One of four tensors, the last V, has a plane less; 4 tokens have what the others lack.
    assert outcomes[DEFAULT].bits_per_value == pytest.approx(3.75 + 2 + 4.25 * 4 / CONTEXT)


def test_bits_a_value_count_unequal_layers_and_the_thinner_one() -> None:
    shapes = [(1, 100, 64), (1, 300, 64)]
    assert bits_per_value(shapes, Choice(5, 3)) == 4.5
    assert bits_per_value(shapes, Choice(5, 3, thin=Thin.FIRST)) == pytest.approx(4.5 - 100 / 800)
    assert bits_per_value(shapes, Choice(5, 3, thin=Thin.LAST)) == pytest.approx(4.5 - 300 / 800)
    assert bits_per_value(shapes, Choice(5, 3, 200)) == pytest.approx(4.5 + 4 * (100 + 200) / 400)


def test_bits_a_value_count_the_groups_of_channels() -> None:
    whole, ragged = [(3, 128, 32)], [(3, 129, 32)]
    # K: 32 bits for 64 tokens of a channel; V: 32 bits for the 32 values of a head vector.
    assert bits_per_value(whole, Choice(5, 3, axes=Axes.CHANNELS_64)) == 4 + (0.5 + 1) / 2
    assert bits_per_value(whole, Choice(5, 3, axes=Axes.CHANNELS_32)) == 4 + (1 + 1) / 2
    assert bits_per_value(whole, Choice(5, 3, 4, Axes.CHANNELS_32)) == 5 + 4 * 4 / 128
    # K as by channels, V as the package sends it.
    assert bits_per_value(whole, Choice(5, 3, 4, Axes.KEY_CHANNELS_64)) == 4 + (0.5 + 1) / 2 + 4 * 4 / 128
    assert bits_per_value(ragged, Choice(5, 3, axes=Axes.CHANNELS_64)) == pytest.approx(4 + (3 * 32 / 129 + 1) / 2)


def test_sinks_cost_what_the_package_sends() -> None:
    sizes = [PlaneLayout(TensorSpec(3, 70, 64, anchor_bits=bits, sink_tokens=4)).part(0).bytes for bits in (5, 3)]
    assert bits_per_value([(3, 70, 64)], Choice(5, 3, 4)) == 8 * sum(sizes) / (2 * 3 * 70 * 64)


def random_layers(*tokens: int) -> list[tuple[Any, Any]]:
    torch.manual_seed(3)
    return [tuple(torch.randn(2, count, 32).to(torch.bfloat16) for _ in range(2)) for count in tokens]


def test_an_anchor_is_what_the_package_decodes_when_the_rest_has_not_arrived() -> None:
    layers = random_layers(70, 3)
    for choice in (Choice(5, 3, 4), Choice(2, 6), Choice(4, 4, 100), Choice(4, 3, 2, thin=Thin.LAST), RAW):
        anchor = CodedCache(Codec.best(), layers).anchor(choice)
        for index, (decoded, source) in enumerate(zip(anchor, layers, strict=True)):
            for bits, mine, tensor in zip(choice.bits(index, 2), decoded, source, strict=True):
                spec = TensorSpec(*tensor.shape, anchor_bits=bits, sink_tokens=choice.sink_tokens)
                if choice is RAW:
                    assert torch.equal(mine, tensor.float())
                    continue
                layout = PlaneLayout(spec)
                coded = torch.empty(layout.bytes, dtype=torch.uint8)
                Codec.best().encode(tensor, layout, coded)
                coded[layout.part(0).bytes :] = 0
                expected = torch.empty(tensor.shape)
                Codec.best().decode(layout, coded, layout.planes_through(0), expected)
                assert torch.equal(mine, expected)


def test_groups_of_channels_are_coded_along_their_axes() -> None:
    keys = torch.zeros(1, 70, 8)
    keys[0, :, 3] = 1000.0  # A channel far off: it shares a scale with no other channel, ...
    keys[0, :, 0] = torch.linspace(-1, 1, 70)
    keys[0, 69, 5] = 4.0  # ... nor a token of the last group of 6 with those of the first.
    values = keys.clone()
    layers = [(keys.to(torch.bfloat16), values.to(torch.bfloat16))]
    ((key, value),) = CodedCache(Codec.best(), layers).anchor(Choice(4, 4, axes=Axes.CHANNELS_64))
    assert key.shape == value.shape == (1, 70, 8)
    assert (key[0, :, 0] - keys[0, :, 0]).abs().max() < 2 / 16  # A step of 16 over the range of 2.
    assert torch.equal(key[0, :64, 5], torch.zeros(64))
    assert (key[0, 64:, 5] - keys[0, 64:, 5]).abs().max() < 4 / 16
    assert 20 < (value[0, :, 0] - values[0, :, 0]).abs().max() < 1000 / 16  # V's vectors share one.


def test_keys_by_channels_leave_values_rotated() -> None:
    cache = CodedCache(Codec.best(), random_layers(70))
    ((key, value),) = cache.anchor(Choice(5, 3, 4, Axes.KEY_CHANNELS_64))
    assert torch.equal(key, cache.anchor(Choice(5, 3, 4, Axes.CHANNELS_64))[0][0])
    assert torch.equal(value, cache.anchor(Choice(5, 3, 4))[0][1])


def test_one_value_alone_is_a_group_without_error() -> None:
    layers = [(torch.full((1, 5, 8), 3.0, dtype=torch.bfloat16), torch.full((1, 5, 8), -2.0, dtype=torch.bfloat16))]
    ((key, value),) = CodedCache(Codec.best(), layers).anchor(Choice(2, 2, axes=Axes.CHANNELS_32))
    assert torch.equal(key, torch.full((1, 5, 8), 3.0))
    assert torch.equal(value, torch.full((1, 5, 8), -2.0))


def test_the_grid_has_each_choice_once_and_names_it_uniquely() -> None:
    for choices in (GRID, COARSE, FINALISTS, CANDIDATES):
        assert len({choice.name for choice in choices}) == len(set(choices)) == len(choices)
    assert {DEFAULT, RAW} <= set(GRID)
    assert set(FINALISTS) | set(COARSE) <= set(GRID)
    assert of_coding(CacheCoding()) == DEFAULT


def test_measuring_again_gives_the_same_figures(model: Any, outcomes: dict[Choice, Outcome]) -> None:
    assert measure(model, [DEFAULT])[DEFAULT] == outcomes[DEFAULT]


def test_the_model_predicts_as_the_engine_of_the_package_does(model: Any) -> None:
    window, engine = WINDOWS[0], TransformersEngine(model)
    layers = CachedModel(model).prefill(window[:CONTEXT])
    engine.start(CONTEXT, 24)
    for index, rows in enumerate(engine.prefill(window[:CONTEXT]).layers):
        for target, source, mine in zip(engine.prompt_rows(index), rows, layers[index], strict=True):
            assert torch.equal(source, mine)
            target.copy_(source)
    expected = engine.logits(window[CONTEXT:], CONTEXT).double().log_softmax(dim=-1)
    torch.testing.assert_close(CachedModel(model).log_probabilities(layers, CONTEXT, window[CONTEXT:]), expected)


def test_a_sliding_layer_is_scored_as_if_its_cache_had_never_left_the_model() -> None:
    torch.manual_seed(2)
    config = transformers.Gemma3TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        initializer_range=0.3,
    )
    sliding = transformers.Gemma3ForCausalLM(config).eval()
    window = WINDOWS[0]
    model = CachedModel(sliding)
    layers = model.prefill(window[:CONTEXT])
    assert [keys.shape[1] for keys, _ in layers] == [31, CONTEXT, 31]
    with torch.inference_mode():
        whole = sliding(input_ids=torch.tensor([window])).logits[0, CONTEXT:].double().log_softmax(dim=-1)
    got = model.log_probabilities(layers, CONTEXT, window[CONTEXT:])
    assert (whole.exp() * (whole - got)).sum(dim=-1).mean() < 1e-3  # bf16's rounding, no more
    (_, score), *_ = score_text(model, Codec.best(), window, CONTEXT, [Choice(8, 8)])
    assert score.agreement > 0.9


def test_texts_begin_as_the_tokenizer_begins_them(saved: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    plain = windows(tokenizer, 300, 20, 4)
    assert [len(window) for window in plain] == [320] * 4

    class Beginning:
        eos_token_id = tokenizer.eos_token_id

        def encode(self, text: str, **options: Any) -> list[int]:
            special = options.get("add_special_tokens", True)
            return [7] * special + tokenizer.encode(text, add_special_tokens=False)

    begun = windows(Beginning(), 300, 20, 4)
    assert [len(window) for window in begun] == [320] * 4
    assert [window[:5] for window in begun] == [[7, *window[:4]] for window in plain]


def test_held_out_texts_share_no_token_with_the_others(saved: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    every = windows(tokenizer, 300, 20, 8)
    assert windows(tokenizer, 300, 20, 4, held_out=True) == every[1::2]
    assert windows(tokenizer, 300, 20, 4) == every[::2]


def test_the_standard_error_is_over_the_texts() -> None:
    outcome = Outcome(DEFAULT, [Score(0.5, 1.0, 4.5), Score(1.0, 3.0, 4.5)])
    assert (outcome.agreement.value, outcome.kl.value) == (0.75, 2.0)
    assert outcome.kl.error == pytest.approx(1.0)  # sqrt(2) over sqrt(2)
    assert math.isnan(Outcome(DEFAULT, [Score(0.5, 1.0, 4.5)]).kl.error)
    other = Outcome(RAW, [Score(0.5, 0.5, 16), Score(1.0, 2.5, 16)])
    assert (outcome.kl_above(other).value, outcome.kl_above(other).error) == (0.5, 0)  # Texts differ, choices do not.


def test_a_score_is_the_definition_worked_by_hand() -> None:
    reference = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64).log()
    other = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64).log()
    agreement, kl = Reference(reference).compare(other)
    assert agreement == 0.5
    assert kl == pytest.approx((0.75 - 0.25) * 1.0986122886681098 / 2)  # ln 3, and 0 for the second.


SETTING = Setting("tiny", "scalar", 80, 24, 2)


def result_of(*scored: tuple[Choice, Score]) -> Result:
    return Result(SETTING, [Outcome(choice, [score]) for choice, score in scored])


def test_bounds_are_met_on_their_edge_and_short_behind_it() -> None:
    def ends(agreement: float, kl: float, bits: float) -> list[str]:
        result = result_of((DEFAULT, Score(agreement, kl, bits)))
        assert [check.line().rsplit(": ", 1)[1] for check in grid_checks([result])[:2]] == [
            check.line().rsplit(": ", 1)[1] for check in checks(result)
        ]
        return [check.line().rsplit(" ", 1)[1] for check in grid_checks([result])]

    assert ends(0.96, 0.01, 4.5) == ["met", "met", "met"]
    assert ends(0.95, 0.011, 4.51) == ["short", "short", "short"]
    assert checks(result_of((Choice(5, 5), Score(1.0, 0.0, 5.5)))) == []


def test_the_best_is_the_least_kl_that_the_product_sends_within_the_bound() -> None:
    result = result_of(
        (Choice(5, 3), Score(0.9, 0.02, 4.5)),
        (Choice(4, 4), Score(0.9, 0.03, 4.5)),
        (Choice(5, 4), Score(0.9, 0.01, 5.0)),
        (Choice(5, 3, axes=Axes.CHANNELS_64), Score(0.9, 0.001, 4.5)),
    )
    best = result.best()
    assert best is not None
    assert best.choice == Choice(5, 3)
    assert "5 + 3 (4.500)" in best_line(result)
    assert result_of((RAW, Score(1, 0, 16))).best() is None
    assert to_json(result)["rows"][3]["anchor"]["axes"] == "KIVI 64"


def test_the_store_gives_back_what_was_kept_and_measures_the_rest_again(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "scores.jsonl"
    store = Store(file)
    assert store.get(SETTING, 0, DEFAULT) is None
    kept = Score(0.96875, 0.1 + 0.2, 4.5078125)
    store.add(SETTING, 0, DEFAULT, kept)
    store.add(SETTING, 1, RAW, Score(1, 0, 16))
    file.write_text(file.read_text()[:-20])  # Interrupted while it wrote.
    again = Store(file)
    assert again.get(SETTING, 0, DEFAULT) == kept
    assert again.get(SETTING, 1, RAW) is None
    assert again.get(Setting("tiny", "scalar", 81, 24, 2), 0, DEFAULT) is None
    assert again.get(Setting("tiny", "another", 80, 24, 2), 0, DEFAULT) == kept
    again.add(SETTING, 1, RAW, Score(1, 0, 16))
    assert Store(file).get(SETTING, 1, RAW) == Score(1, 0, 16)


def command(saved: Path, *arguments: str) -> list[str]:
    return ["--model", str(saved), "--context", "80", "--tokens", "24", "--texts", "2", *arguments]


def test_the_command_prints_the_bounds_last_and_writes_json(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "quality.json"
    assert main(command(saved, "--json", str(file))) == 0
    result = json.loads(file.read_text())
    assert {key: result[key] for key in ("model", "context_tokens", "tokens_per_text", "texts")} == {
        "model": "tiny",
        "context_tokens": 80,
        "tokens_per_text": 24,
        "texts": 2,
    }
    assert len(result["rows"]) == len(CANDIDATES)
    assert result["rows"][-1]["anchor"] is None
    (default,) = (row for row in result["rows"] if row["name"].endswith("(default)"))
    assert default["anchor"] == {
        "key_bits": 5,
        "value_bits": 3,
        "sink_tokens": 4,
        "axes": "rotation",
        "thin_layer": "last",
    }
    for row in result["rows"]:
        assert row["kl_nats_error"] >= 0 <= row["agreement_error"]
        assert row["kl_nats"] == pytest.approx(sum(text["kl_nats"] for text in row["per_text"]) / 2)
        assert row["agreement"] == pytest.approx(sum(text["agreement"] for text in row["per_text"]) / 2)
    assert [set(check) for check in result["checks"]] == [{"name", "value", "bound", "op", "ok"}] * 2
    agreement, kl = result["checks"]
    assert (agreement["value"], agreement["bound"], agreement["op"]) == (default["agreement"], 0.96, ">=")
    assert (kl["value"], kl["bound"], kl["op"]) == (default["kl_nats"], 0.01, "<=")
    printed = capsys.readouterr().out.splitlines()
    for line, check in zip(printed[-2:], result["checks"], strict=True):
        assert line.startswith(check["name"])
        assert line.endswith("met" if check["ok"] else "short")


def test_json_on_standard_output_stands_there_alone(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(saved, "--texts", "1", "--json", "-")) == 0
    printed = capsys.readouterr()
    assert [row["kl_nats_error"] for row in json.loads(printed.out)["rows"]] == [None] * len(CANDIDATES)
    assert DEFAULT.name == "5 + 3, 4 sinks, V 2 in the last layer"
    assert "V 2 in the last layer (default)" in " ".join(printed.err.split())


def test_what_cannot_be_measured_is_told_in_a_line(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "no/such.gguf"]) == 1
    assert "no/such.gguf" in capsys.readouterr().err
    assert main(command(saved, "--context", "250")) == 1
    assert "274 tokens asked of a model that was made for 256" in capsys.readouterr().err


def test_the_grid_goes_on_where_it_was_interrupted(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file, page = tmp_path / "scores.jsonl", tmp_path / "grid.json", tmp_path / "grid.md"
    arguments = command(saved, "--grid", "--store", str(store), "--json", str(file), "--markdown", str(page))
    assert main(arguments) == 0
    lines = store.read_text().splitlines()
    assert len(lines) == 2 * len(GRID)
    first = json.loads(file.read_text())
    store.write_text("\n".join([*lines[:5], lines[5][:30]]))
    assert main(arguments) == 0
    assert json.loads(file.read_text()) == first
    # Whole, it needs no model.
    monkeypatch.setattr("lynx.models.load", None)
    assert main(arguments) == 0
    assert json.loads(file.read_text()) == first
    (setting,) = first["settings"]
    assert [row["name"].removesuffix(" (default)") for row in setting["rows"]] == [choice.name for choice in GRID]
    assert [check["name"].rsplit(": ", 1)[0] for check in first["checks"]] == ["tiny at 80 tokens"] * 3
    assert page.read_text().count("\n| ") == len(GRID) + 2
    assert "best at <= 4.5 bits a value" in capsys.readouterr().out


def test_the_grid_measures_the_finalists_alone_on_held_out_texts(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "scores.jsonl"
    assert main(command(saved, "--grid", "--held-out", "--texts", "1", "--store", str(store), "--json", "-")) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["settings"][0]["rows"]) == len(FINALISTS)
    assert result["settings"][0]["held_out"] is True
    assert all("held-out" in check["name"] for check in result["checks"])
