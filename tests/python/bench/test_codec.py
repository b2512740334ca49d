"""The codec's benchmarks, without timing: reading results, the bounds, and that what is compared does the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lynx  # noqa: E402
from bench import checks as bench_checks  # noqa: E402
from bench.checks import Check  # noqa: E402
from bench.codec import native, report, results  # noqa: E402
from bench.codec.baselines import Baseline, in_turns, random_source  # noqa: E402
from bench.codec.cache import ExactCoding  # noqa: E402
from bench.codec.torch_reference import TorchEncoder, hadamard  # noqa: E402

MEMORY = 1 << 28


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def entry(name: str, seconds: float, **others: Any) -> dict[str, Any]:
    return {
        "name": name,
        "run_name": name,
        "run_type": "iteration",
        "seconds": seconds,
        "memcpy_seconds": 1.0,
        **others,
    }


def report_of(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"context": {"isas": "avx512 avx2 scalar", "memory_bytes": str(MEMORY)}, "benchmarks": list(entries)}


def row(kernel: str, isa: str, head_dim: int, of_memcpy: float, **others: Any) -> results.Row:
    fields = {"source_bytes": MEMORY, "dtype": "bf16", "slowdown": None, **others}
    return results.Row(
        kernel=kernel,
        isa=isa,
        head_dim=head_dim,
        seconds=1 / of_memcpy,
        memcpy_seconds=1.0,
        of_memcpy=of_memcpy,
        **fields,
    )


def results_of(*rows: results.Row) -> results.Results:
    return results.Results(("avx512", "avx2", "scalar"), MEMORY, rows)


def test_a_check_is_met_at_its_bound_and_short_of_it_below() -> None:
    assert Check("speed", 0.5, 0.5, ">=").ok
    assert not Check("speed", 0.49, 0.5, ">=").ok
    assert Check("ratio", 1.05, 1.05, "<=").ok
    assert not Check("ratio", 1.06, 1.05, "<=").ok
    assert not Check("nothing", math.nan, 0.5, ">=").ok
    assert Check("speed", 0.5, 0.5, ">=").line() == "speed: 0.5000, bound >= 0.5: met"
    assert Check("speed", 0.25, 0.5, ">=").line() == "speed: 0.2500, bound >= 0.5: short"


def test_checks_as_json_say_whether_they_are_met() -> None:
    assert bench_checks.to_json([Check("speed", 0.25, 0.5, ">=")]) == [
        {"name": "speed", "value": 0.25, "bound": 0.5, "op": ">=", "ok": False}
    ]


def test_repetitions_become_medians_and_google_benchmarks_own_are_left_out() -> None:
    name = "encode/bf16/isa:avx512/head_dim:64/bytes:268435456/iterations:1/repeats:3/manual_time"
    mean = entry(name, 1000.0) | {"run_type": "aggregate", "name": f"{name}_mean"}
    read = results.parse(report_of(entry(name, 2.0), entry(name, 4.0), entry(name, 9.0), mean))
    assert read.isas == ("avx512", "avx2", "scalar")
    assert read.memory_bytes == MEMORY
    [one] = read.rows
    assert (one.kernel, one.dtype, one.isa, one.head_dim, one.source_bytes) == ("encode", "bf16", "avx512", 64, MEMORY)
    assert (one.seconds, one.memcpy_seconds, one.of_memcpy, one.slowdown) == (4.0, 1.0, 0.25, None)
    assert one.bytes_per_second == MEMORY / 4


def test_what_is_timed_beside_a_kernel_gives_its_slowdown() -> None:
    name = "refine/bf16/isa:avx2/head_dim:64/bytes:1048576"
    [one] = results.parse(report_of(entry(name, 3.0, beside_seconds=2.0))).rows
    assert one.slowdown == 1.5


@pytest.mark.parametrize("name", ["encode", "encode/bf16/isa:avx2/bytes:1", "encode/bf16/64/128"])
def test_a_name_that_is_not_understood_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="KERNEL/DTYPE"):
        results.parse(report_of(entry(name, 1.0)))


def test_a_benchmark_that_failed_is_an_error() -> None:
    failed = entry("encode/bf16/isa:avx2/head_dim:64/bytes:1", 1.0, error_occurred=True, error_message="no memory")
    with pytest.raises(ValueError, match="no memory"):
        results.parse(report_of(failed))


def program(folder: Path, script: str) -> Path:
    """Something to run in place of the C++ benchmarks."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_programs_report_is_read_and_its_progress_told(tmp_path: Path) -> None:
    name = "encode/bf16/isa:avx512/head_dim:64/bytes:268435456"
    (tmp_path / "report.json").write_text(json.dumps(report_of(entry(name, 2.0))))
    script = f"""case "$*" in
      *--benchmark_list_tests*) echo {name} ;;
      *) echo '{name}_mean   2 us'; echo '{name}_median   2 us'
         for a in "$@"; do
           case $a in --benchmark_out=*) cp {tmp_path}/report.json "${{a#--benchmark_out=}}" ;; esac
         done ;;
    esac"""
    told: list[tuple[int, int]] = []
    read = native.run(program(tmp_path, script), False, lambda done, total: told.append((done, total)))
    assert [row.seconds for row in read.rows] == [2.0]
    assert told == [(0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no such CPU >&2; exit 1", "lists no benchmarks: no such CPU"),
        (
            'case "$*" in *list*) echo encode ;; *) echo out of memory >&2; exit 3 ;; esac',
            "ended with 3: out of memory",
        ),
    ],
)
def test_a_program_that_fails_is_an_error_with_its_last_words(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        native.run(program(tmp_path, script), False, lambda done, total: None)


def test_a_program_that_was_not_built_is_an_error_that_says_how(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="make bench-codec"):
        native.run(tmp_path / "nothing", False, lambda done, total: None)


def test_the_slower_head_dim_and_the_slowest_anchor_width_count() -> None:
    rows = [row("encode", "avx512", 64, 0.7), row("encode", "avx512", 128, 0.6)]
    rows += [row(f"decode{n}", "avx512", d, 1.0 + n / 10 + d / 1000) for n in (3, 4, 5) for d in (64, 128)]
    found = report.checks(results_of(*rows), [], {})
    assert [(c.name, c.value, c.bound, c.op) for c in found] == [
        ("encode to 8 planes, avx512, fraction of memcpy", 0.6, 0.5, ">="),
        ("decode of the anchor, avx512, fraction of memcpy", pytest.approx(1.364), 0.9, ">="),
    ]


def test_only_tensors_beyond_the_caches_count_and_head_dims_64_and_128() -> None:
    rows = [row("encode", "avx512", 64, 0.7), row("encode", "avx512", 128, 0.1, source_bytes=1 << 20)]
    rows += [row("encode", "avx512", 256, 0.2), row("encode", "avx512", 64, 0.3, dtype="fp16")]
    [check] = report.checks(results_of(*rows), [], {})
    assert check.value == 0.7


def test_avx2_has_four_tenths_of_each_bound() -> None:
    rows = [row(kernel, isa, 64, 0.4) for kernel in ("encode", "decode8") for isa in ("avx512", "avx2", "scalar")]
    found = report.checks(results_of(*rows), [], {})
    assert [(c.name.split(", ")[1], c.bound, c.ok) for c in found] == [
        ("avx512", 0.5, False),
        ("avx512", 0.8, False),
        ("avx2", 0.2, True),
        ("avx2", 0.32, True),
    ]


def test_torch_refining_and_the_exact_tier_have_their_bounds() -> None:
    torch_rows = [Baseline("torch, encode", d, MEMORY, 1.0, 0.1, lynx_is_faster=d / 4) for d in (64, 128, 256)]
    torch_rows.append(Baseline("torch.compile, encode", 64, MEMORY, 1.0, 0.1, lynx_is_faster=1.0))
    refined = [row("refine", "avx512", d, 1.0, slowdown=s) for d, s in ((64, 1.01), (128, 1.1), (256, 2.0))]
    found = report.checks(results_of(*refined), torch_rows, {"smollm2": 12.0})
    assert [(c.value, c.bound, c.op, c.ok) for c in found] == [
        (16.0, 20.0, ">=", False),
        (1.1, 1.05, "<=", False),
        (12.0, 12.1, "<=", True),
    ]


def test_the_json_holds_the_checks_that_are_printed() -> None:
    measured = results_of(row("encode", "avx512", 64, 0.7))
    written = report.to_json(measured, [], {"smollm2": 12.0})
    assert written["checks"] == bench_checks.to_json(report.checks(measured, [], {"smollm2": 12.0}))
    assert [c["ok"] for c in written["checks"]] == [True, True]
    assert written["kernels"][0]["bytes_per_second"] == pytest.approx(0.7 * MEMORY)


def test_the_tables_take_what_was_not_measured_as_empty() -> None:
    rows = (row("encode", "avx512", 64, 0.8), row("encode", "avx2", 64, 0.4), row("decode8", "avx2", 64, 0.4))
    assert report.kernels_table(results_of(*rows)).row_count == 2
    assert report.baselines_table([Baseline("blosc2, split alone", None, MEMORY, 1.0, 0.5)]).row_count == 1


def test_works_run_in_turns_and_the_first_round_is_not_counted() -> None:
    calls: list[str] = []
    rounds = in_turns(2, lambda: calls.append("a"), lambda: calls.append("b"))
    assert calls == ["a", "b"] * 3
    assert [len(times) for times in rounds] == [2, 2]


def test_the_hadamard_matrix_is_in_natural_order() -> None:
    expected = [[(-1.0) ** bin(i & j).count("1") for j in range(16)] for i in range(16)]
    assert hadamard(16).tolist() == expected


def codes_of(planes: Any) -> Any:
    """uint8 [8, vectors, head_dim / 8] to the codes, int [vectors, head_dim]."""
    bits = (planes.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8)) & 1
    weights = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1]).view(8, 1, 1)
    return (bits.flatten(2).int() * weights).sum(0)


@pytest.mark.parametrize("head_dim", [8, 64, 128, 256])
@pytest.mark.parametrize("vectors", [8, 1032])
def test_the_torch_reference_gives_the_codecs_codes_up_to_rare_last_bits(head_dim: int, vectors: int) -> None:
    source = random_source(vectors, head_dim) * torch.linspace(0.01, 100, head_dim).bfloat16()
    source[3] = 0  # Its scale is 0.
    scales, zeros = torch.ones(2, vectors, dtype=torch.float16)
    planes = torch.ones(8, vectors, head_dim // 8, dtype=torch.uint8)
    TorchEncoder(head_dim).encode(source, scales, zeros, planes)

    layout = lynx.PlaneLayout(lynx.TensorSpec(1, vectors, head_dim))
    coded = torch.zeros(layout.bytes, dtype=torch.uint8)
    lynx.Codec.best().encode(source[None], layout, coded)
    first_plane = layout.plane(0).offset
    their_scales, their_zeros = coded[:first_plane].view(torch.float16).view(2, vectors)
    their_codes = codes_of(coded[first_plane:].view(8, vectors, head_dim // 8))

    torch.testing.assert_close(scales, their_scales, rtol=2e-3, atol=0)
    torch.testing.assert_close(zeros, their_zeros, rtol=2e-3, atol=0)
    assert ((scales != their_scales) | (zeros != their_zeros)).float().mean() < 1e-3
    difference = (codes_of(planes) - their_codes).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 1e-3
    assert not planes[:, 3].any()


def test_a_cache_with_the_exact_tier_comes_back_and_its_bits_are_counted() -> None:
    tensors = [random_source(3 * 64, 64).view(3, 64, 64), random_source(64, 128).view(1, 64, 128)]
    assert 11 < ExactCoding(lynx.Codec.best(), tensors).bits_per_value() < 13
