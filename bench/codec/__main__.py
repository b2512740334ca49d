"""The command `python -m bench.codec`: runs the program and what stands beside it, prints tables and bounds."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import lynx
from bench import command

if TYPE_CHECKING:
    from .baselines import Baseline
    from .results import Results

PROGRAM = Path("build/bench-codec/bench/codec/lynx_bench_codec")
REPORT = Path("build/bench/codec.json")

_TABLE_COLUMNS = 120  # Where there is no terminal that has a width.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C."""
    arguments = _parser().parse_args(argv)
    return command.run("bench.codec", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    # Here and not above, so that --help and wrong usage do not wait for torch.
    from . import native, report

    console = Console(no_color=arguments.no_color, highlight=False)
    if not console.is_terminal:
        console.width = _TABLE_COLUMNS
    with command.progress(arguments.no_color) as on_progress:
        results = native.run(
            arguments.program, arguments.full, lambda done, total: on_progress("the codec's kernels", done, total)
        )
        beside = Beside() if arguments.kernels_only else _beside(results, arguments.full, on_progress)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report.to_json(results, beside.baselines, beside.exact_bits), indent=2) + "\n")
    console.print(report.kernels_table(results))
    if beside.baselines:
        console.print(report.baselines_table(beside.baselines))
    for note in beside.notes:
        console.print(note, soft_wrap=True)
    for check in report.checks(results, beside.baselines, beside.exact_bits):
        console.print(check.line(), soft_wrap=True)


@dataclass
class Beside:
    """What stands beside the kernels, and what of it could not be measured."""

    baselines: list[Baseline] = field(default_factory=list)
    exact_bits: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _beside(results: Results, full: bool, on_progress: command.OnProgress) -> Beside:
    import torch

    from . import baselines, cache, report

    torch.set_num_threads(1)
    codec = lynx.Codec.by_name(results.isas[0])
    repetitions = 9 if full else 5
    beside = Beside()

    def by_torch(head_dim: int, compiled: bool) -> None:
        beside.baselines.append(baselines.encode_by_torch(codec, results.memory_bytes, head_dim, repetitions, compiled))

    def by_blosc2() -> None:
        beside.baselines.append(baselines.split_by_blosc2(results.memory_bytes, repetitions))

    def on_cache(name: str) -> None:
        coding = cache.ExactCoding(codec, cache.of_model(name))
        beside.exact_bits[name] = bits = coding.bits_per_value()
        for isa in results.isas[1:]:
            other = cache.ExactCoding(lynx.Codec.by_name(isa), coding.tensors)
            other.bits_per_value()
            if not torch.equal(other.coded(), coding.coded()):
                raise ValueError(f"{isa} codes the cache of {name} to other bytes than {results.isas[0]}")
        isas = ", ".join(results.isas)
        beside.notes.append(
            f"exact tier on the cache of {name}, {cache.CONTEXT_TOKENS:,} tokens: {bits:.3f} bits a value in all; "
            f"the same bytes by {isas}, and every bit came back"
        )
        if name == report.EXACT_BITS_MODEL:
            beside.baselines += baselines.lossless_by_zipnn(coding, repetitions)

    steps: list[Callable[[], None]] = [
        functools.partial(by_torch, head_dim, compiled)
        for compiled in ((False, True) if full else (False,))
        for head_dim in (64, 128, 256)
    ]
    steps += [by_blosc2, *(functools.partial(on_cache, name) for name in report.MODELS)]
    for done, step in enumerate(steps):
        on_progress("what stands beside it", done, len(steps))
        try:
            step()
        except ImportError as e:  # blosc2 has no wheel for every Python.
            beside.notes.append(f"not measured: {e}")
    on_progress("what stands beside it", len(steps), len(steps))
    return beside


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.codec",
        description="Times the codec's kernels against memcpy, and beside them torch, blosc2 and zipnn. One thread.",
    )
    parser.add_argument("--full", action="store_true", help="every kernel, source type, size and instruction set")
    parser.add_argument("--kernels-only", action="store_true", help="without torch, blosc2 and zipnn")
    parser.add_argument(
        "--program", type=Path, default=PROGRAM, metavar="FILE", help=f"the C++ benchmarks (default {PROGRAM})"
    )
    parser.add_argument("--json", type=Path, default=REPORT, metavar="FILE", help=f"the result (default {REPORT})")
    parser.add_argument("--no-color", action="store_true", help="no colours")
    return parser


if __name__ == "__main__":
    sys.exit(main())
