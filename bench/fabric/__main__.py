"""The command `python -m bench.fabric`: runs pairs of processes, prints tables and bounds."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

import lynx
from bench import command

from . import link, loopback, report, shaped
from .ends import remove_shm_files
from .results import Results

PROGRAM = Path("build/bench-fabric/bench/fabric/lynx_bench_fabric")
REPORT = Path("build/bench/fabric.json")
STEPS = ("goodput", "latency", "link", "anchors")
RATES = (10**8, 10**9, 5 * 10**9)
PLAIN_MTU, JUMBO_MTU = 1500, 9000
FULL_CHUNKS = (64 << 10, 256 << 10, 1 << 20, 4 << 20)

_REALTIME_PRIORITY = 5
_TABLE_COLUMNS = 120  # Where there is no terminal that has a width.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C."""
    arguments = _parser().parse_args(argv)
    return command.run("bench.fabric", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    if not arguments.program.is_file():
        raise ValueError(f"{arguments.program} is not there: `make bench-fabric` builds it")
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REALTIME_PRIORITY))  # The ends inherit it.
    providers = loopback.usable(arguments.provider, {p.name: p.usable for p in lynx.list_providers()})
    console = Console(no_color=arguments.no_color, highlight=False)
    if not console.is_terminal:
        console.width = _TABLE_COLUMNS
    results = Results(lynx.fabric_version())
    try:
        with command.progress(arguments.no_color) as on_progress:
            _measure(arguments, providers, results, on_progress)
    finally:
        remove_shm_files()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report.to_json(results), indent=2) + "\n")
    for table in report.tables(results):
        console.print(table)
    for note in dict.fromkeys(results.notes):
        console.print(note, soft_wrap=True)
    for check in report.checks(results):
        console.print(check.line(), soft_wrap=True)


def _measure(
    arguments: argparse.Namespace, providers: list[str], results: Results, on_progress: command.OnProgress
) -> None:
    steps = arguments.only or STEPS
    if {"goodput", "latency"} & set(steps):
        for provider in providers:
            _loopback(arguments, steps, provider, results, on_progress)
    if {"link", "anchors"} & set(steps):
        reason = link.unavailable()
        over = next((provider for provider in shaped.PROVIDER_ORDER if provider in providers), None)
        if reason is None and over is None:
            reason = "none of the providers that go over a network was chosen"
        if over is None or reason is not None:
            results.notes.append(f"the link of a known rate was not measured: {reason}")
            return
        for rate in RATES:
            _shaped(arguments, steps, rate, over, results, on_progress)


def _loopback(
    arguments: argparse.Namespace,
    steps: Sequence[str],
    provider: str,
    results: Results,
    on_progress: command.OnProgress,
) -> None:
    kinds = loopback.contenders(arguments.program, provider, results.notes.append)
    chunks = FULL_CHUNKS if arguments.full else (loopback.CHUNK_BYTES,)
    with loopback.Contest.of(kinds, results.notes.append) as contest:
        if "goodput" in steps:
            for chunk in chunks:
                what = f"{provider}: goodput, writes of {chunk >> 10:,} KiB"
                row = contest.goodput(provider, chunk, arguments.seconds, _percents(on_progress, what))
                results.goodput.append(row)
        if "latency" in steps:
            results.latency += contest.latency(provider, _percents(on_progress, f"{provider}: latency"))


def _shaped(
    arguments: argparse.Namespace,
    steps: Sequence[str],
    rate: int,
    provider: str,
    results: Results,
    on_progress: command.OnProgress,
) -> None:
    words = shaped.of_rate(rate)
    try:
        for mtu in (PLAIN_MTU, JUMBO_MTU):
            if "link" not in steps or (mtu == JUMBO_MTU and rate < report.LINK_RATE and not arguments.full):
                continue
            with link.shaped(rate, mtu) as made:
                on_step = _percents(on_progress, f"{words} link, MTU {mtu}: {provider}")
                contenders = (loopback.LYNX, loopback.BARE) if arguments.full else (loopback.LYNX,)
                for done, contender in enumerate(contenders, 1):
                    results.link.append(shaped.transfer(made, arguments.program, provider, contender))
                    on_step(done / len(contenders))
        if "anchors" in steps:
            count = 5 if arguments.full or rate >= report.LINK_RATE else 2
            for backlogs in shaped.BACKLOGS:
                with link.shaped(rate, PLAIN_MTU) as made:
                    on_step = _percents(on_progress, f"{words} link: anchors among {backlogs} residuals")
                    results.anchors.append(shaped.anchors(made, arguments.program, provider, backlogs, count, on_step))
    except link.LinkUnavailableError as e:
        results.notes.append(f"the link of {words} was not measured: {e}")


def _percents(on_progress: command.OnProgress, what: str) -> Callable[[float], None]:
    on_progress(what, 0, 100)
    return lambda share: on_progress(what, round(100 * share), 100)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fabric",
        description="Transfers between two processes: Lynx against bare libfabric, NIXL and Mooncake, and over links "
        "of a known rate (for which it has to be root).",
    )
    parser.add_argument("--full", action="store_true", help="writes of other sizes, bare libfabric over the links too")
    parser.add_argument("--only", action="append", choices=STEPS, help="this step alone; may be given again")
    parser.add_argument("--provider", action="append", metavar="NAME", help="this one alone; may be given again")
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="N", help="for each goodput, at least 5 repetitions (default 10)"
    )
    parser.add_argument(
        "--realtime", action="store_true", help="before all other processes of a busy machine; for root, and brief runs"
    )
    parser.add_argument(
        "--program", type=Path, default=PROGRAM, metavar="FILE", help=f"the C++ ends (default {PROGRAM})"
    )
    parser.add_argument("--json", type=Path, default=REPORT, metavar="FILE", help=f"the result (default {REPORT})")
    parser.add_argument("--no-color", action="store_true", help="no colours")
    return parser


if __name__ == "__main__":
    sys.exit(main())
