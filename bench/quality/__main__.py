"""The command `python -m bench.quality`: reads arguments, shows progress, prints tables and bounds."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import lynx
from bench import command

from .choices import CANDIDATES, COARSE, FINALISTS, GRID, Choice

if TYPE_CHECKING:
    from .report import Result
    from .store import Setting

FILE_COLUMNS = 110  # Of what is not a terminal.
STORE = Path("build/bench/quality/scores.jsonl")
TOKENS = 64
# Of the command without --grid: model, context and texts.
USUAL = ("smollm2", 2048, 16)
# Of the grid, as --model, --context and --texts give one; whether its texts are the held-out ones; its choices.
GRID_SETTINGS: tuple[tuple[str, int, int, bool, Sequence[Choice]], ...] = (
    ("smollm2", 2048, 16, False, GRID),
    ("gemma3", 2048, 6, False, COARSE),
    ("smollm2", 7000, 3, False, COARSE),
    ("smollm2", 2048, 16, True, FINALISTS),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C."""
    arguments = _parser().parse_args(argv)
    return command.run("bench.quality", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    # Here and not above, so that --help and wrong usage do not wait for torch.
    from . import report

    console = Console(stderr=arguments.json == Path("-"), no_color=arguments.no_color, highlight=False)
    if not console.is_terminal:
        console.width = FILE_COLUMNS
    if arguments.grid:
        results = _grid(arguments)
        _write(arguments.json, lambda: json.dumps(report.grid_to_json(results), indent=2) + "\n")
        for result in results:
            console.print(report.to_table(result, result.by_size()))
        for result in results:
            console.print(report.best_line(result), soft_wrap=True)
        found = report.grid_checks(results)
    else:
        results = [_usual(arguments)]
        _write(arguments.json, lambda: json.dumps(report.to_json(results[0]), indent=2) + "\n")
        console.print(report.to_table(results[0], results[0].outcomes))
        found = report.checks(results[0])
    _write(arguments.markdown, lambda: report.to_markdown(results))
    for check in found:
        console.print(check.line(), soft_wrap=True)


def _usual(arguments: argparse.Namespace) -> Result:
    from .store import Store

    name, context, texts = (arguments.model or USUAL[0], arguments.context or USUAL[1], arguments.texts or USUAL[2])
    setting = _setting(name, context, arguments.tokens, texts, arguments.held_out)
    return _measured([(name, setting, CANDIDATES)], Store(None), arguments.no_color)[0]


def _grid(arguments: argparse.Namespace) -> list[Result]:
    from .store import Store

    wanted = GRID_SETTINGS
    if arguments.model or arguments.context or arguments.texts or arguments.held_out:
        one = (arguments.model or USUAL[0], arguments.context or USUAL[1], arguments.texts or USUAL[2])
        wanted = ((*one, arguments.held_out, FINALISTS if arguments.held_out else GRID),)
    runs = [
        (name, _setting(name, context, arguments.tokens, texts, held_out), choices)
        for name, context, texts, held_out, choices in wanted
    ]
    return _measured(runs, Store(arguments.store), arguments.no_color)


def _setting(name: str, context: int, tokens: int, texts: int, held_out: bool) -> Setting:
    from lynx import models

    from .store import Setting

    return Setting(models.resolve(name).name, lynx.Codec.best().name, context, tokens, texts, held_out)


def _measured(runs: Sequence[tuple[str, Setting, Sequence[Choice]]], store: Any, no_color: bool) -> list[Result]:
    from .report import Result
    from .run import run

    results = []
    with _progress(no_color) as begin:
        for name, setting, choices in runs:
            on_score = begin(setting.title(), setting.texts, len(choices))
            results.append(Result(setting, run(name, setting, choices, store, on_score)))
    return results


@contextlib.contextmanager
def _progress(no_color: bool) -> Iterator[Callable[[str, int, int], Callable[[int], None]]]:
    """On the standard error, a bar for each setting on a terminal and a line for each text elsewhere.

    Yields what begins a setting: it takes a title, the texts and the scores of each, and returns what to call with
    a text's index after each of its scores.
    """
    console = Console(stderr=True, no_color=no_color, highlight=False)
    if not console.is_terminal:

        def begin_lines(title: str, texts: int, scores: int) -> Callable[[int], None]:
            console.print(title, soft_wrap=True)
            done = [0] * texts

            def on_score(text: int) -> None:
                done[text] += 1
                if done[text] == scores:
                    console.print(f"text {text + 1} of {texts} is measured")

            return on_score

        yield begin_lines
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:

        def begin_bar(title: str, texts: int, scores: int) -> Callable[[int], None]:
            task = progress.add_task(title, total=texts * scores)
            return lambda text: progress.advance(task)

        yield begin_bar


def _write(file: Path | None, text: Callable[[], str]) -> None:
    if file == Path("-"):
        sys.stdout.write(text())
    elif file is not None:
        file.write_text(text())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality",
        description="Compares a model's predictions on anchors of the coded cache with those on the bf16 cache.",
    )
    parser.add_argument(
        "--grid",
        action="store_true",
        help="all widths, axes and sinks on both models, about half an hour; goes on where it was interrupted",
    )
    parser.add_argument(
        "--model", metavar="NAME", help=f"smollm2, gemma3, a .gguf file, or a directory (default {USUAL[0]})"
    )
    parser.add_argument("--context", type=_positive, metavar="N", help=f"tokens in the cache (default {USUAL[1]})")
    parser.add_argument(
        "--tokens", type=_positive, default=TOKENS, metavar="N", help=f"tokens to predict after them (default {TOKENS})"
    )
    parser.add_argument("--texts", type=_positive, metavar="N", help=f"texts to measure (default {USUAL[2]})")
    parser.add_argument("--held-out", action="store_true", help="the texts halfway between those")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON too; - for standard output")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown too")
    parser.add_argument(
        "--store", type=Path, default=STORE, metavar="FILE", help=f"where the grid keeps its scores (default {STORE})"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
