"""The evaluation on a tiny random model and on made-up rows: what must hold whatever the model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")
pytest.importorskip("transformers", reason="the extra 'transformers' is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # Benches are run from the checkout, never installed.

import lynx  # noqa: E402
from bench.eval import bounds, equality, faults, kivi, modes, report, sections, tasks  # noqa: E402
from bench.eval.__main__ import main  # noqa: E402
from bench.eval.bench import Bench  # noqa: E402
from bench.eval.questions import QUESTIONS  # noqa: E402
from bench.eval.records import Records  # noqa: E402
from bench.eval.sections import Plan  # noqa: E402
from bench.eval.stats import median, wilson  # noqa: E402
from bench.eval.store import CacheStore, read  # noqa: E402
from lynx.engines.transformers import TransformersEngine  # noqa: E402
from lynx.planning import coding_of  # noqa: E402

PLAN = Plan(
    contexts=(160,),
    setting_prompts=1,
    setting_tokens=8,
    equality_prompts=1,
    equality_context=160,
    equality_tokens=16,
    fault_context=256,
    fault_prompts=1,
)


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(tiny_model_dir)


@pytest.fixture(scope="module")
def made(tokenizer: Any) -> tasks.Tasks:
    return tasks.Tasks(tokenizer)


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def bench(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("eval")
    with Bench(str(tiny_model_dir), folder, Records(folder / "records.jsonl"), silent) as made:
        yield made


def test_prompts_have_the_very_length_and_are_the_same_again(tokenizer: Any, made: tasks.Tasks) -> None:
    again = tasks.Tasks(tokenizer)
    for task, context in ((tasks.NEEDLE, 700), (tasks.ANSWER, 3500), (tasks.CONTINUE, 300)):
        for index in (0, 1, 25):
            prompt = made.make(task, context, index)
            assert len(prompt.token_ids) == context
            assert prompt == again.make(task, context, index)
    assert made.make(tasks.NEEDLE, 700, 0) != made.make(tasks.NEEDLE, 700, 1)


def test_a_prompt_that_does_not_fit_is_refused(made: tasks.Tasks) -> None:
    with pytest.raises(tasks.PromptError, match="40 tokens was asked"):
        made.make(tasks.NEEDLE, 40, 0)


def test_answers_can_be_right_and_wrong(tokenizer: Any, made: tasks.Tasks) -> None:
    needle = made.make(tasks.NEEDLE, 700, 3)
    assert needle.correct(f"It is {needle.answers[0]}.") is True
    assert needle.correct("It is 1234.") is False
    assert needle.answers[0] in tokenizer.decode(needle.token_ids)
    assert made.make(tasks.CONTINUE, 300, 3).correct("anything") is None


def test_every_question_is_answered_by_the_text_in_its_prompt(tokenizer: Any, made: tasks.Tasks) -> None:
    assert len(QUESTIONS) >= 10
    for index, question in enumerate(QUESTIONS):
        text = tokenizer.decode(made.make(tasks.ANSWER, 3500, index).token_ids)
        assert question.quote in text
        assert question.text in text
        assert made.make(tasks.ANSWER, 3500, index).correct(question.answers[0].upper())


def test_the_store_prefills_once_and_forgets_the_longest_unused(tiny_model: Any, tmp_path: Path) -> None:
    engine = TransformersEngine(tiny_model)
    prompts = [[(step * i * i + 1) % 250 for i in range(40)] for step in (3, 5, 7)]
    store = CacheStore(tmp_path, engine, "digest", max_bytes=1 << 30)
    path = store.path_of(prompts[0])
    assert CacheStore(tmp_path, engine, "digest").path_of(prompts[0]) == path
    assert CacheStore(tmp_path, engine, "another").path_of(prompts[0]) != path
    prefilled = engine.prefill(prompts[0])
    stored = read(path)
    assert torch.equal(stored.logits, prefilled.logits)
    for ours, theirs in zip(stored.layers, prefilled.layers, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    small = CacheStore(tmp_path, engine, "digest", max_bytes=path.stat().st_size * 3 // 2)
    small.path_of(prompts[1])
    newest = small.path_of(prompts[2])
    assert list(tmp_path.glob("*.safetensors")) == [newest]


def test_records_go_on_where_they_were_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "records.jsonl"
    records = Records(file, "code")
    records.add("setting", {"a": 1, "b": 2}, {"x": 0.1 + 0.2})
    records.add("setting", {"a": 2, "b": 2}, {"x": 1})
    file.write_text(file.read_text()[:-9])
    again = Records(file, "code")
    assert again.get("setting", {"b": 2, "a": 1}) == {"x": 0.1 + 0.2}
    assert again.get("setting", {"a": 2, "b": 2}) is None
    assert again.get("tasks", {"a": 1, "b": 2}) is None
    again.add("setting", {"a": 2, "b": 2}, {"x": 2})
    assert Records(file, "code").get("setting", {"a": 2, "b": 2}) == {"x": 2}
    assert Records(file, "newer code").get("setting", {"a": 2, "b": 2}) is None


def test_rows_are_those_that_this_run_has_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    for key in range(3):
        Records(file, "code").add("setting", {"a": key}, {"x": key})
    records = Records(file, "code")
    assert not list(records.rows("setting"))
    records.get("setting", {"a": 2})
    records.get("setting", {"a": 7})
    assert list(records.rows("setting")) == [{"a": 2, "x": 2}]


def test_intervals_are_those_of_the_textbook() -> None:
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert median([3, 1, 2]) == 2
    assert median([1, None]) != median([1, None])


def test_kivi_restores_within_half_a_step_and_weighs_what_its_groups_weigh() -> None:
    torch.manual_seed(1)
    keys, values = torch.randn(2, 100, 32).bfloat16(), torch.randn(2, 100, 32).bfloat16()
    k, v = kivi.restore(keys, values)
    spread = keys[0, :32, 0].float().max() - keys[0, :32, 0].float().min()
    assert (k[0, :32, 0] - keys[0, :32, 0].float()).abs().max() <= spread / 15 * 0.51
    assert torch.equal(k[:, 96:], keys[:, 96:].float())
    assert not torch.equal(v[:, :96], values[:, :96].float())
    assert kivi.cache_bytes([(2, 32)], 96) == 2 * (2 * 96 * 32 * 4 + (32 * 3 + 96) * 32) // 8


def timed(mode: str, seconds: float, provisional: float, prompt: int = 0, **other: Any) -> dict[str, Any]:
    row = {
        "model": "tiny",
        "context": 100,
        "bytes_per_second": 10**6,
        "link": False,
        "mode": mode,
        "prompt": prompt,
        "tokens_wanted": 64,
        "bytes": 1000,
        "ttft_provisional_s": provisional,
        "ttft_verified_s": seconds,
        "time_to_verified_s": {str(k): seconds + k / 100 for k in (1, 8, 32, 64)},
        "drafted": 0,
        "accepted": 0,
        "tokens": [1, 2],
        "equal_to": modes.MODES[mode].equal_to,
    }
    return {**row, **other}


def test_the_settings_bounds_are_kept_and_missed() -> None:
    rows = [timed("int8", 2.0, 2.0), timed("int4", 1.0, 1.0), timed("lynx-int8", 1.9, 1.0)]
    assert len(list(bounds.setting(rows))) == 6
    assert all(check.ok for check in bounds.setting(rows))
    rows[2] = timed("lynx-int8", 2.1, 1.3)
    assert not any(check.ok for check in bounds.setting(rows))
    rows[2]["time_to_verified_s"]["64"] = None  # Never came.
    assert not any(check.ok for check in bounds.setting(rows))


def test_adapting_is_measured_against_the_best_that_does_not() -> None:
    rows = [timed("int8", 3.0, 3.0), timed("lynx-int8", 2.0, 1.0), timed("adaptive", 2.1, 1.0, drafted=5)]
    assert [check.ok for check in bounds.adaptive(rows)] == [True, True]
    rows.append(timed("layerwise", 1.5, 1.5))
    assert [check.ok for check in bounds.adaptive(rows)] == [False, False]
    rows[2] = timed("adaptive", 1.5, 1.5, tokens_wanted=40)  # Of these 32 have a time.
    assert [check.ok for check in bounds.adaptive(rows)] == [True, True]


def test_a_mode_that_was_not_measured_gets_no_check() -> None:
    assert not list(bounds.setting([timed("int8", 2.0, 2.0)]))
    assert not list(bounds.adaptive([timed("int8", 2.0, 2.0)]))
    assert not bounds.checks(lambda section: [])


def case(**other: Any) -> dict[str, Any]:
    usual = {"tier": "exact", "sampling": "greedy", "equal": True, "near_tie": None, "rollbacks": 1, "same_rows": True}
    return {**usual, "drafted": 9, "near_ties": 0, **other}


def test_equality_counts_near_ties_apart() -> None:
    assert all(check.ok for check in bounds.equality([{"cases": [case(), case(equal=False, near_tie=True)]}]))
    different = [check.ok for check in bounds.equality([{"cases": [case(), case(equal=False, near_tie=False)]}])]
    assert different == [False, True, True]
    assert not all(check.ok for check in bounds.equality([{"cases": [case(same_rows=False)]}]))
    assert not all(check.ok for check in bounds.equality([{"cases": [case(rollbacks=0)]}]))


def fault(**other: Any) -> dict[str, Any]:
    usual = {"killed": True, "raised": None, "committed": 0, "verified": False, "tier": "ANCHOR", "error": "PeerLost"}
    return {**usual, "mode": "anchor-first", "on_loss": "KEEP_DRAFTING", "tokens": 16, **other}


def test_a_lost_sender_may_not_end_verified() -> None:
    raised = fault(on_loss="RAISE", raised="PeerLost", verified=None, tier=None, error=None)
    assert all(check.ok for check in bounds.faults([fault(), raised]))
    assert not all(check.ok for check in bounds.faults([fault(verified=True)]))
    assert not all(check.ok for check in bounds.faults([fault(committed=3)]))
    assert not all(check.ok for check in bounds.faults([fault(on_loss="RAISE")]))


def test_the_report_says_what_is_equal_and_fills_the_document(tmp_path: Path) -> None:
    rows = {
        "setting": [timed("int8", 2.0, 2.0), timed("lynx-int8", 1.9, 1.0, tokens=[1, 3], drafted=4, accepted=3)],
        "tasks": [timed("int8", 1, 1, i, task="needle", correct=i > 0) for i in range(4)],
        "equality": [{"cases": [case(equal=False, near_tie=True)]}],
        "faults": [fault()],
    }
    markdown = report.to_markdown(report.tables(lambda name: rows.get(name, [])), [], ["gemma3 was not measured"])
    assert "| lynx-int8 | 0.0 | 1.00 | 1.91 | 1.98 | 2.22 | 2.54 | 0.75 | 0/1 = int8 |" in markdown
    assert "| int8 | 0.0 | 3/4 | 0.75 (0.30 - 0.95) |" in markdown
    assert "gemma3 was not measured" in markdown
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.fill(page, markdown)
    report.fill(page, markdown)
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")
    assert page.read_text().count("3/4") == 1
    assert "old" not in page.read_text()
    page.write_text("no markers")
    with pytest.raises(ValueError, match="has no"):
        report.fill(page, markdown)


def test_a_choice_becomes_the_coding_that_it_says() -> None:
    policies = pytest.importorskip("lynx.policies")
    whole = coding_of(policies.Choice((8, 8), draft=False))
    assert (whole.anchor_bits(1, 2), whole.exact) == ((8, 8), False)
    assert coding_of(policies.Choice((4, 3)), exact=modes.MODES[modes.EXACT].coding.exact).exact


def test_requests_run_from_end_to_end_and_are_not_run_again(bench: Bench) -> None:
    sections.setting(bench, PLAN)
    rows = list(bench.records.rows("setting"))
    assert {row["mode"] for row in rows} == {m for m in sections.SETTING_MODES if not modes.MODES[m].missing}
    by_mode = {row["mode"]: row for row in rows}
    for row in rows:
        assert len(row["tokens"]) == 8
        assert row["verified"] is (row["mode"] not in (modes.INT4, modes.KIVI))
    assert by_mode["anchor-first"]["tokens"] == by_mode["int8"]["tokens"]
    assert by_mode["int4"]["bytes"] < by_mode["int8"]["bytes"]
    sections.setting(bench, PLAN)
    assert list(bench.records.rows("setting")) == rows


def test_drafts_are_taken_back_and_committed_tokens_are_those_of_blocking(bench: Bench) -> None:
    equality.run(bench, PLAN, "unused", Path("unused"), workers=1)
    (row,) = bench.records.rows("equality")
    assert [(c["sampling"], c["tier"]) for c in row["cases"]] == [
        (sampling, tier) for sampling in ("greedy", "sampled") for tier in ("int8", "exact")
    ]
    for one in row["cases"]:
        assert one["equal"] or one["near_tie"]
        assert one["drafted"] >= 10
    assert all(one["same_rows"] for one in row["cases"] if one["tier"] == "exact")


def test_a_killed_sender_leaves_nothing_verified(bench: Bench) -> None:
    faults.run(bench, PLAN)
    rows = list(bench.records.rows("faults"))
    assert {row["on_loss"] for row in rows} == {"RAISE", "KEEP_DRAFTING"}
    assert all(check.ok for check in bounds.faults(rows)), rows


def test_the_command_writes_the_checks_and_says_what_is_missing(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = modes.Mode("anchor-first", "", lynx.transfer.CacheCoding(), None, "int8", missing="not in this build")
    monkeypatch.setitem(modes.MODES, "anchor-first", lacking)
    file = tmp_path / "out" / "eval.json"
    arguments = ["--quick", "--only", "faults", "--only", "setting", "--contexts", "160", "--prompts", "1"]
    assert (
        main([*arguments, "--model", str(tiny_model_dir), "--store", str(tmp_path / "store"), "--json", str(file)]) == 0
    )
    result = json.loads(file.read_text())
    assert any("anchor-first was not measured: not in this build" in note for note in result["notes"])
    assert all(set(check) == {"name", "value", "bound", "op", "ok"} for check in result["checks"])
    assert any(check["name"].startswith("faults") for check in result["checks"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].endswith(("met", "short"))
    assert main(["--model", "no/such.gguf", "--store", str(tmp_path)]) == 1
    assert "no/such.gguf" in capsys.readouterr().err
