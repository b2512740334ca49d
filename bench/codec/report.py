"""The results as a table and as JSON, and the bounds that the codec has to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench import checks as bench_checks
from bench.checks import Check

from .baselines import Baseline
from .results import Results, Row

HEAD_DIMS = (64, 128)
"""Of a bound's value: the lower of both counts."""

# What is bounded, the kernels of which the slowest counts, and the least fraction of memcpy's speed.
MEMCPY_BOUNDS = (
    ("encode to 8 planes", ("encode",), 0.5),
    ("decode of the anchor", ("decode3", "decode4", "decode5"), 0.9),
    ("decode of 8 planes", ("decode8",), 0.8),
    ("exact encode", ("encode_exact",), 0.12),
    ("exact decode", ("decode_exact",), 0.18),
)
AVX2_SHARE = 0.4  # AVX2 has to reach this share of each of these bounds.
TIMES_TORCH = 20.0
# Refining may cost no more than decoding all planes: the same work onto the same memory. Two medians of one
# quantity still differ by a few per cent on a shared machine, which is what 0.05 allows for.
REFINE_RATIO = 1.05
EXACT_BITS = 12.1
EXACT_BITS_MODEL = "smollm2"
MODELS = ("smollm2", "gemma3")  # whose caches go through the exact tier

_MIB = 1 << 20


def checks(results: Results, baselines: Sequence[Baseline], exact_bits: dict[str, float]) -> list[Check]:
    """One for each bound of what was measured: the fastest instruction set's, AVX2's, and the others."""
    fastest = results.isas[0]
    found = _memcpy_checks(results, fastest, 1.0)
    if "avx2" in results.isas and fastest != "avx2":
        found += _memcpy_checks(results, "avx2", AVX2_SHARE)
    torch_rows = [row for row in baselines if row.name == "torch, encode" and row.head_dim in HEAD_DIMS]
    times_torch = [row.lynx_is_faster for row in torch_rows if row.lynx_is_faster is not None]
    if times_torch:
        name = f"encode, {fastest}, times the torch reference's speed"
        found.append(Check(name, min(times_torch), TIMES_TORCH, ">="))
    slowdowns = [row.slowdown for row in results.at_memory("refine", fastest, HEAD_DIMS) if row.slowdown is not None]
    if slowdowns:
        name = f"refine, {fastest}, time over that of decode of 8 planes"
        found.append(Check(name, max(slowdowns), REFINE_RATIO, "<="))
    if EXACT_BITS_MODEL in exact_bits:
        name = f"exact tier, bits a value in all on {EXACT_BITS_MODEL}'s cache"
        found.append(Check(name, exact_bits[EXACT_BITS_MODEL], EXACT_BITS, "<="))
    return found


def _memcpy_checks(results: Results, isa: str, share: float) -> list[Check]:
    found = []
    for name, kernels, bound in MEMCPY_BOUNDS:
        fractions = [row.of_memcpy for kernel in kernels for row in results.at_memory(kernel, isa, HEAD_DIMS)]
        if fractions:
            found.append(Check(f"{name}, {isa}, fraction of memcpy", min(fractions), round(share * bound, 4), ">="))
    return found


def to_json(results: Results, baselines: Sequence[Baseline], exact_bits: dict[str, float]) -> dict[str, Any]:
    """Plain values: seconds, bytes, bytes per second."""
    return {
        "isas": list(results.isas),
        "memory_bytes": results.memory_bytes,
        "kernels": [{**asdict(row), "bytes_per_second": row.bytes_per_second} for row in results.rows],
        "baselines": [{**asdict(row), "bytes_per_second": row.bytes_per_second} for row in baselines],
        "exact_bits_per_value": exact_bits,
        "checks": bench_checks.to_json(checks(results, baselines, exact_bits)),
    }


def kernels_table(results: Results) -> Table:
    """A row for each kernel and tensor, a column for each instruction set."""
    table = Table(
        title="the codec's kernels, one thread",
        caption="GB/s of source bytes, and the fraction of memcpy's speed in the same run; medians",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("kernel", no_wrap=True)
    for name in ("head_dim", "MiB", "memcpy", *results.isas):
        table.add_column(name, justify="right", no_wrap=True)
    both = {"avx2", "avx512"} <= set(results.isas)
    if both:
        table.add_column("avx2/avx512", justify="right")
    tensors = sorted(
        {(row.dtype, row.head_dim, row.source_bytes) for row in results.rows}, key=lambda t: (t[0] != "bf16", *t)
    )
    for dtype, head_dim, source_bytes in tensors:
        of_tensor = [
            row
            for row in results.rows
            if (row.dtype, row.head_dim, row.source_bytes) == (dtype, head_dim, source_bytes)
        ]
        for kernel in dict.fromkeys(row.kernel for row in of_tensor):
            rows = {row.isa: row for row in of_tensor if row.kernel == kernel}
            memcpy = next(iter(rows.values()))
            table.add_row(
                kernel if dtype == "bf16" else f"{kernel} {dtype}",
                str(head_dim),
                f"{source_bytes // _MIB:,}",
                f"{memcpy.source_bytes / memcpy.memcpy_seconds / 1e9:.1f}",
                *(_cell(rows.get(isa)) for isa in results.isas),
                *([_ratio(rows)] if both else []),
            )
        table.add_section()
    return table


def baselines_table(baselines: Sequence[Baseline]) -> Table:
    """A row for each."""
    table = Table(
        title="what stands beside it, one thread",
        caption="GB/s of bf16 bytes; lynx: how many times faster its codec does the same; zipnn: of SmolLM2's cache, "
        "lynx in all tiers",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for name in ("head_dim", "MiB", "GB/s", "of memcpy", "lynx", "bits a value"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in baselines:
        table.add_row(
            row.name,
            str(row.head_dim or ""),
            f"{row.source_bytes / _MIB:,.0f}",
            f"{row.bytes_per_second / 1e9:.2f}",
            f"{row.of_memcpy:.3f}",
            "" if row.lynx_is_faster is None else f"{row.lynx_is_faster:.1f} x",
            "" if row.bits_per_value is None else f"{row.bits_per_value:.2f}",
        )
    return table


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{row.bytes_per_second / 1e9:.2f}  {row.of_memcpy:.3f}"


def _ratio(rows: dict[str, Row]) -> str:
    if not {"avx2", "avx512"} <= rows.keys():
        return ""
    return f"{rows['avx2'].of_memcpy / rows['avx512'].of_memcpy:.2f}"
