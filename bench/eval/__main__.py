"""The command `python -m bench.eval`: makes the requests that are not known yet, prints tables and bounds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench import command
from lynx.units import parse_bandwidth

from .records import Records
from .sections import FULL, QUICK, USUAL, Plan

if TYPE_CHECKING:
    from .bench import Bench

SECTIONS = ("setting", "equality", "adaptive", "faults", "tasks")
FOLDER = Path("build/eval")
REPORT = Path("build/bench/eval.json")
DOCUMENT = Path("docs/evaluation.md")
MODELS = ("smollm2",)
FULL_MODELS = ("smollm2", "gemma3")
_TABLE_COLUMNS = 140  # Where there is no terminal that has a width.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C."""
    arguments = _parser().parse_args(argv)
    return command.run("bench.eval", lambda: _run(arguments))


def plan_of(arguments: argparse.Namespace) -> Plan:
    """How much is measured, from the arguments."""
    plan = QUICK if arguments.quick else FULL if arguments.full else USUAL
    if arguments.contexts:
        plan = plan.with_contexts(arguments.contexts)
    if arguments.bandwidths:
        plan = replace(plan, bandwidths=arguments.bandwidths)
    return plan.with_prompts(arguments.prompts) if arguments.prompts else plan


def _run(arguments: argparse.Namespace) -> None:
    from . import bounds, plots, report

    plan, only = plan_of(arguments), arguments.only or SECTIONS
    records = Records(arguments.store / "records.jsonl")
    notes: list[str] = [] if arguments.full else [_cut_down()]
    with command.progress(arguments.no_color) as on_progress:
        for model in arguments.model or (FULL_MODELS if arguments.full else MODELS):
            _measure(model, plan, only, arguments, records, notes, on_progress)

    def rows_of(section: str) -> list[dict[str, Any]]:
        return list(records.rows(section))

    found, made = bounds.checks(rows_of), report.tables(rows_of)
    without_plots = plots.draw(rows_of, arguments.json.parent / "eval-plots")
    notes += [without_plots] if without_plots else []
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report.to_json(rows_of, found, notes, asdict(plan)), indent=1) + "\n")
    markdown = report.to_markdown(made, found, notes)
    arguments.json.with_suffix(".md").write_text(markdown)
    if arguments.write_docs:
        report.fill(DOCUMENT, markdown)
    console = Console(no_color=arguments.no_color, highlight=False)
    if not console.is_terminal:
        console.width = _TABLE_COLUMNS
    for table in made:
        console.print(table.rich())
    for note in notes:
        console.print(note, soft_wrap=True, markup=False)
    for check in found:
        console.print(check.line(), soft_wrap=True, markup=False)


def _measure(
    model: str,
    plan: Plan,
    only: Sequence[str],
    arguments: argparse.Namespace,
    records: Records,
    notes: list[str],
    on_progress: command.OnProgress,
) -> None:
    from lynx.engines.base import UnsupportedModel

    from .bench import Bench

    try:
        bench = Bench(model, arguments.store, records, on_progress, over_link=arguments.link)
    except UnsupportedModel as e:
        notes.append(f"{model} was not measured: {e}")
        return
    with bench:
        _sections(bench, plan, only, model, arguments)
    notes += bench.notes


def _sections(bench: Bench, plan: Plan, only: Sequence[str], model: str, arguments: argparse.Namespace) -> None:
    from . import equality, faults, sections

    if "setting" in only:
        sections.setting(bench, plan)
    if "equality" in only:
        equality.run(bench, plan, model, arguments.store, arguments.workers)
    if "adaptive" in only:
        sections.adaptive(bench, plan)
    if "faults" in only:
        faults.run(bench, plan)
    if "tasks" in only:
        sections.accuracy(bench, plan)


def _cut_down() -> str:
    return (
        "cut down, all of it by --full: Gemma 3, some bandwidths of the sweep and most of its prompts, "
        "tasks at 4,096 tokens and most of their prompts"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.eval",
        description="Measures requests from end to end: when tokens come, whether they are the right ones, and what "
        "they answer. Goes on where it was interrupted.",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few short prompts: does it work?")
    size.add_argument("--full", action="store_true", help="both models, all bandwidths and contexts: hours")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section alone; may be given again")
    parser.add_argument("--model", action="append", metavar="NAME", help="smollm2, a .gguf file, or a directory")
    parser.add_argument("--prompts", type=_positive, metavar="N", help="in each section")
    parser.add_argument("--contexts", type=_contexts, metavar="N,N", help="tokens of the setting and the tasks")
    parser.add_argument(
        "--bandwidths", type=_bandwidths, metavar="RATE,RATE", help="of the sweep, such as 50Mbit,1Gbit"
    )
    parser.add_argument(
        "--link", action="store_true", help="over two network namespaces with a shaped link; needs root"
    )
    parser.add_argument("--workers", type=_positive, metavar="N", help="processes for equality (default: a core each)")
    parser.add_argument("--store", type=Path, default=FOLDER, metavar="DIR", help=f"caches and rows (default {FOLDER})")
    parser.add_argument("--json", type=Path, default=REPORT, metavar="FILE", help=f"the result (default {REPORT})")
    parser.add_argument("--write-docs", action="store_true", help=f"put the tables into {DOCUMENT}")
    parser.add_argument("--no-color", action="store_true", help="no colours")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _contexts(text: str) -> tuple[int, ...]:
    return tuple(_positive(part.strip()) for part in text.split(","))


def _bandwidths(text: str) -> tuple[int, ...]:
    try:
        rates = tuple(parse_bandwidth(part.strip()) for part in text.split(","))
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
    if 0 in rates:
        raise argparse.ArgumentTypeError("the sweep is over limited rates")
    return rates


if __name__ == "__main__":
    sys.exit(main())
