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
from bench.quality.measure import CANDIDATES, DEFAULT, Outcome, Score, compare, measure  # noqa: E402
from bench.quality.report import checks  # noqa: E402
from lynx import Codec  # noqa: E402
from lynx.engines.transformers import TransformersEngine  # noqa: E402
from lynx.transfer import RAW, CacheCoding  # noqa: E402

VOCABULARY = 258
CONTEXT = 80


def plain(key_bits: int, value_bits: int) -> CacheCoding:
    return CacheCoding(key_anchor_bits=key_bits, value_anchor_bits=value_bits, sink_tokens=0)


WIDTHS = [plain(bits, bits) for bits in range(1, 9)]
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


@pytest.fixture(scope="module")
def outcomes(model: Any) -> dict[Any, Outcome]:
    candidates = [*WIDTHS, DEFAULT, CacheCoding(sink_tokens=CONTEXT), RAW]
    found = measure(TransformersEngine(model), Codec.best(), WINDOWS, CONTEXT, candidates)
    assert [outcome.candidate for outcome in found] == candidates
    return {outcome.candidate: outcome for outcome in found}


def test_the_raw_cache_makes_no_difference_at_all(outcomes: dict[Any, Outcome]) -> None:
    assert outcomes[RAW].scores == [Score(1.0, 0.0)] * len(WINDOWS)


def test_the_cache_of_all_planes_agrees_nearly_fully(outcomes: dict[Any, Outcome]) -> None:
    assert outcomes[plain(8, 8)].agreement.value >= 0.95
    assert 0 < outcomes[plain(8, 8)].kl.value < 0.01


def test_kl_falls_with_every_plane(outcomes: dict[Any, Outcome]) -> None:
    values = [outcomes[width].kl.value for width in WIDTHS]
    assert values == sorted(values, reverse=True)
    assert values[0] > 100 * values[-1]
    assert outcomes[WIDTHS[0]].agreement.value < outcomes[WIDTHS[7]].agreement.value


def test_with_all_tokens_as_sinks_the_anchor_is_all_there_is(outcomes: dict[Any, Outcome]) -> None:
    assert outcomes[CacheCoding(sink_tokens=CONTEXT)].scores == outcomes[plain(8, 8)].scores


def test_bits_a_value_count_all_that_is_sent(outcomes: dict[Any, Outcome]) -> None:
    for bits, width in enumerate(WIDTHS, 1):
        assert outcomes[width].bits_per_value == bits + 2 * 16 / 16  # Two fp16 for 16 values.
    assert outcomes[DEFAULT].bits_per_value == pytest.approx(4 + 2 + 4 * 4 / CONTEXT)  # 4 more bits of 4 tokens.
    assert outcomes[RAW].bits_per_value == 16


def test_measuring_again_gives_the_same_figures(model: Any, outcomes: dict[Any, Outcome]) -> None:
    again = measure(TransformersEngine(model), Codec.best(), WINDOWS, CONTEXT, [DEFAULT])
    assert again == [outcomes[DEFAULT]]


def test_the_standard_error_is_over_the_texts() -> None:
    outcome = Outcome(DEFAULT, 4.5, [Score(0.5, 1.0), Score(1.0, 3.0)])
    assert (outcome.agreement.value, outcome.kl.value) == (0.75, 2.0)
    assert outcome.kl.error == pytest.approx(1.0)  # sqrt(2) over sqrt(2)
    assert math.isnan(Outcome(DEFAULT, 4.5, [Score(0.5, 1.0)]).kl.error)


def test_a_score_is_the_definition_worked_by_hand() -> None:
    reference = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64).log()
    other = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64).log()
    score = compare(reference, other)
    assert score.agreement == 0.5
    assert score.kl == pytest.approx((0.75 - 0.25) * 1.0986122886681098 / 2)  # ln 3, and 0 for the second.


def test_bounds_are_met_on_their_edge_and_short_behind_it() -> None:
    def lines(agreement: float, kl: float) -> list[str]:
        return [check.line() for check in checks([Outcome(DEFAULT, 4.5, [Score(agreement, kl)])])]

    assert [line.rsplit(" ", 1)[1] for line in lines(0.96, 0.01)] == ["met", "met"]
    assert [line.rsplit(" ", 1)[1] for line in lines(0.95, 0.011)] == ["short", "short"]
    assert checks([Outcome(plain(5, 5), 5.5, [Score(1.0, 0.0)])]) == []


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
    (default,) = (row for row in result["rows"] if row["anchor"] == {"key_bits": 5, "value_bits": 3, "sink_tokens": 4})
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
    assert "5 + 3, 4 sinks (default)" in printed.err


def test_what_cannot_be_measured_is_told_in_a_line(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "no/such.gguf"]) == 1
    assert "no/such.gguf" in capsys.readouterr().err
    assert main(command(saved, "--context", "250")) == 1
    assert "274 tokens asked of a model that was made for 256" in capsys.readouterr().err
