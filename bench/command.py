"""What the commands of all benches do alike."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import lynx

INTERRUPTED = 130

OnProgress = Callable[[str, int, int], None]
"""What is being measured, how many of how many steps are done."""


def run(name: str, work: Callable[[], None]) -> int:
    """Do the work; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C or SIGTERM."""
    with _interrupts():
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
def _interrupts() -> Iterator[None]:
    """Makes signals that end a process a KeyboardInterrupt, so that what was begun is cleaned up.

    Python does so for SIGINT by itself, but some libraries that libfabric loads put an immediate exit in its place.
    """

    def interrupt(*_: object) -> NoReturn:
        for number in previous:
            signal.signal(number, signal.SIG_IGN)  # The end has begun; another one would only tear it.
        raise KeyboardInterrupt

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not one of Python's.


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
