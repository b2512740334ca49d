"""What the commands of all benches do alike."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import lynx

INTERRUPTED = 130

OnProgress = Callable[[str, int, int], None]
"""What is being measured, how many of how many steps are done."""


def run(name: str, work: Callable[[], None]) -> int:
    """Do the work; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C."""
    try:
        work()
        return 0
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (lynx.Error, ValueError, OSError, ImportError) as e:  # What a user can mend.
        print(f"{name}: {e}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def progress(no_color: bool) -> Iterator[OnProgress]:
    """On the standard error, a bar on a terminal and a line for every tenth of the steps elsewhere."""
    console = Console(stderr=True, no_color=no_color, highlight=False)
    if not console.is_terminal:

        def say(what: str, done: int, total: int) -> None:
            if done * 10 // total != (done - 1) * 10 // total:
                console.print(f"{what}: {done} of {total} are measured")

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {}

        def draw(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        yield draw
