"""The command `python -m bench.quality`: reads arguments, shows progress, prints the table and the bounds."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import lynx

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
        return 0
    except KeyboardInterrupt:
        print("bench.quality: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (lynx.Error, ValueError, OSError, ImportError) as e:  # What a user can mend.
        print(f"bench.quality: {e}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> None:
    # Here and not above, so that --help and wrong usage do not wait for torch.
    from lynx import models, prompts
    from lynx.engines.transformers import TransformersEngine

    from .measure import CANDIDATES, measure
    from .report import Setting, checks, to_json, to_table

    to_stdout = arguments.json == Path("-")
    console = Console(stderr=to_stdout, no_color=arguments.no_color, highlight=False)
    codec = lynx.Codec.best()
    with _progress(arguments.texts, arguments.no_color) as on_text:
        loaded = models.load(arguments.model)
        windows = prompts.texts(loaded.tokenizer, arguments.context, arguments.tokens, arguments.texts)
        outcomes = measure(TransformersEngine(loaded.model), codec, windows, arguments.context, CANDIDATES, on_text)
    setting = Setting(loaded.name, codec.name, arguments.context, arguments.tokens, arguments.texts)
    if arguments.json is not None:
        text = json.dumps(to_json(setting, outcomes), indent=2) + "\n"
        if to_stdout:
            sys.stdout.write(text)
        else:
            arguments.json.write_text(text)
    console.print(to_table(setting, outcomes))
    for check in checks(outcomes):
        console.print(check.line(), soft_wrap=True)


@contextlib.contextmanager
def _progress(texts: int, no_color: bool) -> Iterator[Callable[[int], None]]:
    """On the standard error, a bar on a terminal and lines elsewhere; yields what to call after each text."""
    console = Console(stderr=True, no_color=no_color, highlight=False)
    if not console.is_terminal:
        yield lambda done: console.print(f"text {done} of {texts} is measured")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("texts", total=texts)
        yield lambda done: progress.update(task, completed=done)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality",
        description="Compares a model's predictions on anchors of the coded cache with those on the bf16 cache.",
    )
    parser.add_argument(
        "--model", default="smollm2", metavar="NAME", help="smollm2, a .gguf file, or a directory (default smollm2)"
    )
    for flag, default, text in (
        ("--context", 2048, "tokens in the cache"),
        ("--tokens", 64, "tokens to predict after them"),
        ("--texts", 16, "texts to measure"),
    ):
        parser.add_argument(flag, type=_positive, default=default, metavar="N", help=f"{text} (default {default})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON too; - for standard output")
    parser.add_argument("--no-color", action="store_true", help="no colours")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
