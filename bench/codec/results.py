"""What the program lynx_bench_codec measured, read from Google Benchmark's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one tensor: medians over the repetitions, each of which times memcpy beside the kernel.

    `source_bytes` are those of the uncoded tensor, also for decoding; memcpy copies as many. `slowdown` is the time
    over that of what the kernel is compared with, where it is compared with something (refine with decode8).
    """

    kernel: str
    dtype: str
    isa: str
    head_dim: int
    source_bytes: int
    seconds: float
    memcpy_seconds: float
    of_memcpy: float
    slowdown: float | None

    @property
    def bytes_per_second(self) -> float:
        """Of the source."""
        return self.source_bytes / self.seconds


@dataclass(frozen=True, slots=True)
class Results:
    """`isas` has the fastest first; at `memory_bytes` a tensor is far larger than the last-level cache."""

    isas: tuple[str, ...]
    memory_bytes: int
    rows: tuple[Row, ...]

    def at_memory(self, kernel: str, isa: str, head_dims: tuple[int, ...]) -> list[Row]:
        """The rows of bf16 tensors of `memory_bytes`."""
        return [
            row
            for row in self.rows
            if (row.kernel, row.dtype, row.isa, row.source_bytes) == (kernel, "bf16", isa, self.memory_bytes)
            and row.head_dim in head_dims
        ]


def parse(report: Mapping[str, Any]) -> Results:
    """Read the whole report. Raises `ValueError` for a benchmark that failed or whose name is not understood."""
    repetitions: dict[str, list[Mapping[str, Any]]] = {}
    for entry in report["benchmarks"]:
        if entry.get("error_occurred"):
            raise ValueError(f"{entry['name']}: {entry.get('error_message', 'failed')}")
        if entry["run_type"] == "iteration":  # The others are Google Benchmark's own means of these.
            repetitions.setdefault(entry["run_name"], []).append(entry)
    context = report["context"]
    return Results(
        tuple(context["isas"].split()),
        int(context["memory_bytes"]),
        tuple(_row(name, entries) for name, entries in repetitions.items()),
    )


def _row(name: str, entries: list[Mapping[str, Any]]) -> Row:
    parts = name.split("/")
    fields = dict(part.partition(":")[::2] for part in parts[2:])
    if not {"isa", "head_dim", "bytes"} <= fields.keys():
        raise ValueError(f"benchmark {name!r} is not KERNEL/DTYPE/isa:NAME/head_dim:N/bytes:N")
    compared = "beside_seconds" in entries[0]
    return Row(
        kernel=parts[0],
        dtype=parts[1],
        isa=fields["isa"],
        head_dim=int(fields["head_dim"]),
        source_bytes=int(fields["bytes"]),
        seconds=median(e["seconds"] for e in entries),
        memcpy_seconds=median(e["memcpy_seconds"] for e in entries),
        of_memcpy=median(e["memcpy_seconds"] / e["seconds"] for e in entries),
        slowdown=median(e["seconds"] / e["beside_seconds"] for e in entries) if compared else None,
    )
