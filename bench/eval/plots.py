"""The figures, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .bounds import MILESTONES, Row, by_mode, grouped, last_milestone, of, time_to


def draw(rows_of: Callable[[str], Sequence[Row]], folder: Path) -> str | None:
    """Write them; why not, or None."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no plots: matplotlib is not installed (pip install matplotlib)"
    folder.mkdir(parents=True, exist_ok=True)
    for (model, context), group in grouped(rows_of("setting"), "model", "context").items():
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for mode, rows in by_mode(group).items():
            points = [(k, of(rows, time_to(k))) for k in MILESTONES]
            axes.plot(*zip(*points, strict=True), marker="o", label=mode)
        axes.set(
            xlabel="verified tokens", ylabel="seconds, median", title=f"{model}, {context:,} tokens", ylim=(0, None)
        )
        axes.legend()
        figure.savefig(folder / f"setting-{model}-{context}.svg")
    for (model, context), group in grouped(rows_of("adaptive"), "model", "context").items():
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        tokens = last_milestone(group)
        for mode, rows in by_mode(group).items():
            points = [
                (rate * 8 / 1e6, of(its, time_to(tokens))) for (rate,), its in grouped(rows, "bytes_per_second").items()
            ]
            axes.plot(*zip(*sorted(points), strict=True), marker="o", label=mode)
        axes.set(xscale="log", xlabel="Mbit/s", ylabel=f"seconds to {tokens} verified tokens, median", ylim=(0, None))
        axes.set_title(f"{model}, {context:,} tokens")
        axes.legend()
        figure.savefig(folder / f"sweep-{model}-{context}.svg")
    return None
