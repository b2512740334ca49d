"""Tables, Markdown and JSON of the rows."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich.table
import torch

import lynx
from bench import checks as bench_checks
from bench.checks import Check
from lynx.units import format_bandwidth

from .bounds import MILESTONES, Row, by_mode, grouped, of, time_to
from .stats import wilson

BEGIN, END = "<!-- bench.eval begins -->", "<!-- bench.eval ends -->"
TIMES = ("mode", "MB", "first provisional s", "first verified s", *(f"{k} verified s" for k in MILESTONES[1:]))
TIMED_COLUMNS = (*TIMES, "accepted", "equal")


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, and cells as text; the first column names the row."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[str]]

    def rich(self) -> rich.table.Table:
        """For a terminal."""
        table = rich.table.Table(title=self.title, title_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in self.cells:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a document."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("| --- |" + " ---: |" * (len(self.columns) - 1))
        lines += ["| " + " | ".join(row) + " |" for row in self.cells]
        return "\n".join(lines) + "\n"


def tables(rows_of: Callable[[str], Sequence[Row]]) -> list[Table]:
    """Of all sections that have rows."""
    return [
        *_timed(rows_of("setting"), "The INT8 cache takes 36 decode steps"),
        *_timed(rows_of("adaptive"), "Sweep"),
        *_accuracy(rows_of("tasks")),
        *_equality(rows_of("equality")),
        *_faults(rows_of("faults")),
    ]


def _timed(rows: Sequence[Row], title: str) -> Iterator[Table]:
    for (model, context, rate, link), group in grouped(rows, "model", "context", "bytes_per_second", "link").items():
        prompts = len({row["prompt"] for row in group})
        over = "link of " if link else ""
        where = f"{title}: {model}, {context:,} tokens, {over}{format_bandwidth(round(rate, -3))}"
        where += f", {prompts} prompts, medians"
        cells = []
        for mode, its in by_mode(group).items():
            cells.append(
                (
                    mode,
                    f"{of(its, lambda row: row['bytes']) / 1e6:.1f}",
                    _s(of(its, lambda row: row["ttft_provisional_s"])),
                    *(_s(of(its, time_to(k))) for k in MILESTONES),
                    _share(sum(row["accepted"] for row in its), sum(row["drafted"] for row in its)),
                    equal(its, group),
                )
            )
        yield Table(where, TIMED_COLUMNS, cells)


def equal(its: Sequence[Row], group: Sequence[Row]) -> str:
    """How many texts are those of the mode that they should equal: "9/10 = int8"."""
    other = its[0]["equal_to"]
    texts = {row["prompt"]: row["tokens"] for row in group if row["mode"] == other}
    both = [row for row in its if row["prompt"] in texts]
    if not both:
        return ""
    return f"{sum(row['tokens'] == texts[row['prompt']] for row in both)}/{len(both)} = {other}"


def _accuracy(rows: Sequence[Row]) -> Iterator[Table]:
    for (model, task, context), group in grouped(rows, "model", "task", "context").items():
        cells = []
        for mode, its in by_mode(group).items():
            right = sum(bool(row["correct"]) for row in its)
            low, high = wilson(right, len(its))
            cells.append(
                (
                    mode,
                    f"{of(its, lambda row: row['bytes']) / 1e6:.1f}",
                    f"{right}/{len(its)}",
                    f"{right / len(its):.2f} ({low:.2f} - {high:.2f})",
                    equal(its, group),
                )
            )
        yield Table(
            f"Task {task}: {model}, {context:,} tokens",
            ("mode", "MB", "right", "accuracy (95 %, Wilson)", "equal"),
            cells,
        )


def _equality(rows: Sequence[Row]) -> Iterator[Table]:
    cases = [case for row in rows for case in row["cases"]]
    cells = []
    for (tier, sampling), group in grouped(cases, "tier", "sampling").items():
        same = sum(case["equal"] for case in group)
        ties = sum(not case["equal"] and bool(case["near_tie"]) for case in group)
        counts = (same, ties, len(group) - same - ties)
        sums = (sum(case[name] for case in group) for name in ("drafted", "rollbacks", "near_ties"))
        cells.append((f"{tier}, {sampling}", str(len(group)), *map(str, counts), *map(str, sums)))
    if cells:
        columns = (
            "tier, sampling",
            "texts",
            "equal",
            "differ at a near tie",
            "differ",
            "drafted",
            "rollbacks",
            "near ties",
        )
        yield Table("Committed tokens against blocking decoding", columns, cells)


def _faults(rows: Sequence[Row]) -> Iterator[Table]:
    cells = []
    for (mode, on_loss), group in grouped(rows, "mode", "on_loss").items():
        ends = sorted(
            {row["raised"] or f"{row['tokens']} tokens, {row['tier']}, verified: {row['verified']}" for row in group}
        )
        cells.append((f"{mode}, {on_loss}", str(len(group)), "; ".join(ends)))
    if cells:
        yield Table("The sender is killed after the anchor", ("mode, on loss", "requests", "end"), cells)


def to_json(
    rows_of: Callable[[str], Sequence[Row]], found: Sequence[Check], notes: Sequence[str], plan: dict[str, Any]
) -> dict[str, Any]:
    """Everything, for a file. A value that does not exist is null."""
    return {
        "lynx": lynx.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpus": torch.get_num_threads(),
        "plan": plan,
        "notes": list(notes),
        "rows": {name: list(rows_of(name)) for name in ("pace", "setting", "adaptive", "tasks", "equality", "faults")},
        "checks": [
            {**check, "value": None if math.isnan(check["value"]) else check["value"]}
            for check in bench_checks.to_json(found)
        ],
    }


def to_markdown(made: Sequence[Table], found: Sequence[Check], notes: Sequence[str]) -> str:
    """Tables, bounds and notes."""
    parts = [table.markdown() for table in made]
    parts.append("### Bounds\n\n" + "\n".join(f"- {check.line()}" for check in found) + "\n")
    if notes:
        parts.append("### Not measured\n\n" + "\n".join(f"- {note}" for note in notes) + "\n")
    return "\n".join(parts)


def fill(document: Path, markdown: str) -> None:
    """Put it between the two markers of a document. Raises `ValueError` where they are not."""
    text = document.read_text()
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"{document} has no {BEGIN} and {END} to write between")
    document.write_text(f"{before}{BEGIN}\n\n{markdown}\n{END}{after}")


def _s(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds:.2f}"


def _share(a: int, b: int) -> str:
    return f"{a / b:.2f}" if a and b else ""
