"""Shows events to people: progress bars and live text on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from lynx.commands.events import Message, Sink
from lynx.measure import MILESTONES
from lynx.units import format_bandwidth


def make_display(*, color: bool = True) -> PlainDisplay | LiveDisplay:
    """The display that fits standard output."""
    console = Console(no_color=not color, highlight=False)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class PlainDisplay(Sink):
    """A line for each event that a reader of a log wants."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ("", "")

    def __call__(self, event: Message) -> None:
        """Print one event."""
        kind = event["event"]
        if kind == "measured":
            committed, drafted = self._text
            self._print(f"  text: {committed}{drafted}")
            if drafted:
                self._print(f"  (of it never verified: {drafted})")
        elif kind == "text":
            self._text = (event["committed"], event["drafted"])
        elif kind == "rolled_back":
            self._print(f"  rolled back {event['count']} drafted tokens")
        elif kind == "progress" and event["done"] == event["total"]:
            self._print(f"{event['text']}: {event['total']} tokens")
        elif kind == "result":
            print_result(self._console, event["result"])
        elif line := _line(event):
            self._print(line)

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

    def close(self) -> None:
        """Nothing is left on the screen."""


class LiveDisplay(Sink):
    """Bars for what is being waited for and, below, the text: committed plain, drafted dim."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(bar_width=40),
            TextColumn("{task.percentage:>4.0f} %"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._mode = ""
        self._status = ""
        self._spinner = Spinner("dots")
        self._text = Text()
        self._live = Live(self._render(), console=console, refresh_per_second=12, transient=True)
        self._live.start()

    def __call__(self, event: Message) -> None:
        """Bring the screen up to date."""
        kind = event["event"]
        if kind == "arrived":
            self._bar("anchor", event["anchor"])
            if event["residual"] or "residual" in self._tasks:
                self._bar("residual", event["residual"])
        elif kind == "progress":
            self._bar(event["text"], event["done"] / event["total"])
        elif kind == "text":
            self._text = Text(event["committed"]) + Text(event["drafted"], style="dim")
        elif kind == "rolled_back":
            self._status = f"rolled back {event['count']} drafted tokens"
        elif kind == "mode":
            self._clear()
            self._mode, self._status = _line(event), ""
        elif kind == "measured":
            self._keep(event)
        elif kind == "result":
            self.close()
            print_result(self._console, event["result"])
        elif kind in ("status", "listening"):
            self._status = _line(event)
        elif line := _line(event):
            self._clear()
            self._console.print(line, markup=False)
        self._live.update(self._render())

    def close(self) -> None:
        """Leave the terminal as it was, with what was kept above."""
        self._live.stop()

    def _bar(self, name: str, fraction: float) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=1.0)
        self._bars.update(self._tasks[name], completed=fraction)

    def _clear(self) -> None:
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks = {}
        self._text = Text()

    def _keep(self, event: Message) -> None:
        self._console.print(Panel(self._text, title=event["mode"], title_align="left"))
        self._clear()

    def _render(self) -> RenderableType:
        self._spinner.update(text=Text(self._mode, style="bold") + Text(f"  {self._status}", style="dim"))
        parts: list[RenderableType] = [self._spinner]
        if self._tasks:
            parts.append(self._bars)
        if self._text:
            parts.append(Panel(self._text))
        return Group(*parts)


def _line(event: Message) -> str:
    kind = event["event"]
    if kind == "status":
        return str(event["text"])
    if kind == "listening":
        return f"listening on {event['address']}; stop with Ctrl-C"
    if kind == "mode":
        return f"{event['mode']}: {event['about']}"
    if kind == "prefilled":
        tokens = f"{event['context_tokens']} tokens"
        what = (
            f"prefills {tokens} for each request"
            if event["live"]
            else f"has prefilled {tokens} in {event['prefill_s']:.1f} s"
        )
        return f"{event['model']} {what}: a document, then: {event['question']}"
    return ""


def print_result(console: Console, result: dict[str, Any]) -> None:
    """The comparison that ends `lynx decode` and `lynx demo`; it fits 80 columns."""
    rate = format_bandwidth(result["bandwidth_bytes_per_s"])
    console.print(f"{result['model']}: {result['context_tokens']} tokens of context over {result['provider']}, {rate}")
    console.print(_table(result))
    start = "request, prefill included," if result["live"] else "start of the transfer"
    console.print(f"Seconds from the {start} to the first token that can be")
    console.print("shown, to the first verified one, to k verified ones. One run each.")


def _table(result: dict[str, Any]) -> Table:
    milestones = [k for k in MILESTONES if k != 1 and k <= result["new_tokens"]]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("mode", no_wrap=True)
    for column in ("MB", "shown", "verified", *(f"k={k}" for k in milestones), "drafts\nkept", "equal to"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, m in result["modes"].items():
        times = [m["ttft_provisional_s"], m["ttft_verified_s"]]
        times += [m["time_to_verified_s"][str(k)] for k in milestones]
        table.add_row(
            name,
            f"{m['bytes'] / 1e6:.1f}",
            *("never" if t is None else f"{t:.2f}" for t in times),
            f"{m['accepted']}/{m['drafted']}" if m["drafted"] else "",
            "" if m["equal"] is None else f"{m['equal_to']}: {'yes' if m['equal'] else 'no'}",
            style="bold" if name == "lynx" else "",
        )
    return table
