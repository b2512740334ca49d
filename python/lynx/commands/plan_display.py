"""A plan for people: tables, bars in the terminal, a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lynx.measure import MILESTONES
from lynx.units import format_bandwidth

BAR_WIDTH = 48


def print_plan(console: Console, result: dict[str, Any]) -> None:
    """A table for each bandwidth; they fit 80 columns."""
    origin = "measured here" if result["step_measured"] else "as given"
    what = result["model"] or f"{result['layers']} layers"
    console.print(
        f"{what}: {result['context_tokens']} tokens of context, reference tier {result['reference']}; a step takes "
        f"{1e3 * result['step_s']:.1f} ms, a further token of a pass {1e3 * result['token_s']:.2f} ms, {origin}",
        soft_wrap=True,
    )
    for plan in result["plans"]:
        console.print(
            f"\n{format_bandwidth(plan['bandwidth_bytes_per_s'])}: adaptive {_told(plan['choice'])}", soft_wrap=True
        )
        console.print(_table(plan, result["new_tokens"]))
    console.print("Simulated seconds from the start of the transfer to the first token that can be")
    console.print(f"shown, to the first verified one, to k verified ones. Means of {result['runs']} runs.")


def _told(choice: dict[str, Any]) -> str:
    if not choice["draft"]:
        return "does not speculate: all planes, layer by layer"
    keys, values = choice["anchor_bits"]
    order = "in layer order" if choice["rungs"] == 1 else f"plane by plane in {choice['rungs']} rungs"
    return f"drafts on {keys} planes of K and {values} of V; the rest {order}"


def _milestones(tokens: int) -> list[int]:
    return [k for k in MILESTONES if k != 1 and k <= tokens]


def _table(plan: dict[str, Any], tokens: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    columns = ("MB", "shown", "verified", *(f"k={k}" for k in _milestones(tokens)), "drafts\nkept")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, p in plan["policies"].items():
        times = [p["ttft_provisional_s"], p["ttft_verified_s"]]
        times += [p["time_to_verified_s"][str(k)] for k in _milestones(tokens)]
        table.add_row(
            name,
            f"{p['bytes'] / 1e6:.1f}",
            *("never" if t is None else f"{t:.3f}" for t in times),
            f"{p['accepted']:.0f}/{p['drafted']:.0f}" if p["drafted"] else "",
            style="bold" if name == "adaptive" else "",
        )
    return table


def _aim(tokens: int) -> str:
    """Which of the milestones the plots show."""
    return str(max(k for k in MILESTONES if k <= min(tokens, 32)))


def print_bars(console: Console, result: dict[str, Any]) -> None:
    """Time to k verified tokens against blocking's, as bars: for a terminal without a plotting library."""
    aim = _aim(result["new_tokens"])
    console.print(f"\nTime to {aim} verified tokens, of blocking's:")
    for plan in result["plans"]:
        console.print(format_bandwidth(plan["bandwidth_bytes_per_s"]))
        for name, ratio in _ratios(plan, aim).items():
            console.print(f"{name:>13} {'█' * round(BAR_WIDTH * min(ratio, 1.25))} {ratio:.2f}", markup=False)


def _ratios(plan: dict[str, Any], aim: str) -> dict[str, float]:
    times = {name: p["time_to_verified_s"][aim] for name, p in plan["policies"].items()}
    return {name: t / times["blocking"] for name, t in times.items() if t is not None}


def write_plot(path: Path, result: dict[str, Any]) -> None:
    """The same and the time to the first token shown, over the bandwidth. The suffix says the format: .svg, .png, ...

    Raises `ImportError` without matplotlib, and `ValueError` for a suffix that it does not know.
    """
    from matplotlib.figure import Figure

    aim = _aim(result["new_tokens"])
    plans = sorted(result["plans"], key=lambda plan: float(plan["bandwidth_bytes_per_s"]))
    rates = [plan["bandwidth_bytes_per_s"] * 8 / 1e6 for plan in plans]
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    shown, verified = figure.subplots(1, 2, sharex=True)
    for name in plans[0]["policies"]:
        blocking = [plan["policies"]["blocking"] for plan in plans]
        own = [plan["policies"][name] for plan in plans]
        first = [p["ttft_provisional_s"] / b["ttft_provisional_s"] for p, b in zip(own, blocking, strict=True)]
        shown.plot(rates, first, marker="o", label=name)
        verified.plot(rates, [_ratios(plan, aim)[name] for plan in plans], marker="o", label=name)
    for axes, title in ((shown, "first token shown"), (verified, f"{aim} verified tokens")):
        axes.set(xscale="log", xlabel="Mbit/s", ylabel="time, of blocking's", title=title)
        axes.grid(visible=True, alpha=0.3)
    verified.legend()
    figure.suptitle(f"{result['model'] or 'model'}: {result['context_tokens']} tokens, simulated")
    figure.savefig(path)
