"""`lynx plan`: predictions for people and machines."""

from __future__ import annotations

import builtins
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from lynx import cli
from lynx.model_shapes import parse_shape, shapes_of

FAST = ("plan", "--shape", "4x2x64", "--context", "256", "--step-ms", "20", "--runs", "2", "--tokens", "32")


def test_it_prints_a_table_for_each_bandwidth(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*FAST, "--bandwidth", "2Mbit,1Gbit"]) == 0
    out = capsys.readouterr().out
    assert "2 Mbit/s: adaptive drafts" in out
    assert "1 Gbit/s: adaptive does not speculate" in out
    assert out.count("layer-ready") == 2
    assert "k=64" not in out


def test_its_json_has_every_policy_and_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*FAST, "--bandwidth", "2Mbit", "--token-ms", "0", "--json", "-"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    [plan] = result["plans"]
    assert plan["bandwidth_bytes_per_s"] == 250_000
    assert plan["choice"]["draft"]
    assert (result["step_s"], result["token_s"], result["step_measured"]) == (0.02, 0, False)
    assert set(plan["policies"]) == {"blocking", "anchor-first", "layer-ready", "ladder", "deadline", "adaptive"}
    blocking, ours = plan["policies"]["blocking"], plan["policies"]["layer-ready"]
    assert ours["time_to_verified_s"]["32"] < blocking["time_to_verified_s"]["32"]
    assert blocking["time_to_verified_s"]["64"] is None
    assert blocking["bytes"] == pytest.approx(250_000 * (blocking["ttft_verified_s"] - 0.02), rel=0.01)


def test_acceptance_comes_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "acceptance.json"
    table.write_text('{"3": 0.0, "4": 0.0, "5": 0.0, "6": 0.0, "7": 0.0}')
    assert cli.main([*FAST, "--bandwidth", "2Mbit", "--acceptance", str(table)]) == 0
    assert "does not speculate" in capsys.readouterr().out
    table.write_text('{"4": 1.5}')
    assert cli.main([*FAST, "--acceptance", str(table)]) == 1
    assert "probabilities" in capsys.readouterr().err


def test_without_a_plotting_library_there_are_bars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main([*FAST, "--plot", "-"]) == 0
    assert "█" in capsys.readouterr().out

    real = builtins.__import__

    def no_matplotlib(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    assert cli.main([*FAST, "--plot", str(tmp_path / "plan.svg")]) == 0
    told = capsys.readouterr()
    assert "█" in told.out
    assert "lynx-kv[plot]" in told.err


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib, of the extra plot")
def test_a_plot_is_written(tmp_path: Path) -> None:
    for name in ("plan.svg", "plan.png"):
        assert cli.main([*FAST, "--bandwidth", "2Mbit,20Mbit", "--plot", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--shape", "4x2"), "layers x KV heads x head_dim"),
        (("--shape", "4x2x63"), "multiple of 8"),
        (("--shape", "4x2x64", "--bandwidth", "unlimited"), "name a bandwidth"),
        (("--shape", "4x2x64", "--model", "gemma3"), "not allowed with"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        cli.main(["plan", *arguments])
    assert error.value.code == 2
    assert told in capsys.readouterr().err


def test_a_model_that_is_not_here_needs_its_step_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--shape", "4x2x64"]) == 1
    assert "--step-ms" in capsys.readouterr().err


def test_a_shape_is_layers_heads_and_dimension() -> None:
    assert parse_shape("2x8x128") == ((8, 128), (8, 128))


def test_shapes_come_from_metadata_alone(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert shapes_of(str(tmp_path)) == (tmp_path.name, ((2, 64),) * 3)


@pytest.mark.model
def test_the_shapes_of_a_gguf_file_are_read() -> None:
    pytest.importorskip("gguf")
    assert shapes_of("smollm2") == ("SmolLM2-135M-Instruct", ((3, 64),) * 30)
