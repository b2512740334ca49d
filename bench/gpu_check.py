"""`python bench/gpu_check.py`: are the CUDA kernels right on this machine's device, and how fast are they?

Builds the check program of `bench/gpu` for the device that is there (nvcc, CMake and a C++ compiler are all it takes),
runs it, prints a table and writes `build/bench/gpu_check.json`. It compares every kernel with the CPU bit for bit and
times it against a device copy of as many bytes as its source has. It takes less than four minutes. Without a device it
says so and ends with exit code 0. It needs nothing but Python's standard library.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NO_DEVICE = 77  # of bench/gpu/main.cu
TIME_LIMIT_S = 240


def compute_capability() -> str | None:
    """Of the first device, as nvcc writes architectures ("90"); None if the driver or a device is not there."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR are 75 and 76.
    if (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        or driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    ):
        return None
    return f"{major.value}{minor.value}"


def build(folder: Path, architectures: str) -> Path:
    """The check program, built for these architectures ("90", or several as "80;90")."""
    configure: list[str | Path] = ["cmake", "-S", ROOT / "bench/gpu", "-B", folder, "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"]
    if not shutil.which("nvcc") and "CUDACXX" not in os.environ and Path("/usr/local/cuda/bin/nvcc").is_file():
        configure += ["-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc"]
    jobs = str(os.cpu_count() or 2)
    compiling: list[str | Path] = ["cmake", "--build", folder, "--parallel", jobs]
    for command in (configure, compiling):
        subprocess.run(command, check=True, stdout=sys.stderr)
    return folder / "lynx_gpu_check"


def to_checks(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each kind of result: nothing may differ."""
    return [
        {
            "name": f"gpu: {part['name']}, differing of {part['compared']} compared",
            "value": part["differing"],
            "bound": 0,
            "op": "<=",
            "ok": part["differing"] == 0 and part["compared"] > 0,
        }
        for part in results["identity"]
    ]


def table(results: dict[str, Any]) -> str:
    """The kernels' speeds: GB/s of source bytes, and the fraction of a device copy's speed."""
    lines = [f"{results['device']}; {results['build']}", "", "kernel              head_dim     GB/s   of a copy"]
    for kernel in results["kernels"]:
        speed = kernel["source_bytes"] / kernel["milliseconds"] / 1e6
        fraction = kernel["copy_milliseconds"] / kernel["milliseconds"]
        lines.append(f"{kernel['name']:<20}{kernel['head_dim']:>8} {speed:>8.0f} {fraction:>11.2f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Build, check, time; the exit code: 0, also without a device; 1 if something differs or failed."""
    parser = argparse.ArgumentParser(prog="bench/gpu_check.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--program", type=Path, help="a check program that is built already")
    parser.add_argument("--build-only", metavar="ARCHITECTURES", help='build for these, "80;90", and run nothing')
    parser.add_argument("--source-bytes", type=int, default=1 << 30, help="of each tensor that is timed (1 GiB)")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/gpu_check.json", help="where results go")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    folder = ROOT / "build/gpu_check"
    try:
        if arguments.build_only:
            print(build(folder, arguments.build_only))
            return 0
        architecture = compute_capability()
        if architecture is None:
            print("skipped: no CUDA device")
            return 0
        program = arguments.program or build(folder, architecture)
        left = max(TIME_LIMIT_S - (time.monotonic() - started), 10)
        ran = subprocess.run(
            [program, str(arguments.source_bytes)], stdout=subprocess.PIPE, text=True, timeout=left, check=False
        )
    except (OSError, subprocess.SubprocessError) as e:
        print(f"gpu_check: {e}", file=sys.stderr)
        return 1
    if ran.returncode == NO_DEVICE:
        print("skipped: no CUDA device")
        return 0
    if not ran.stdout:
        return 1
    results = json.loads(ran.stdout)
    results["checks"] = to_checks(results)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(table(results))
    for check in results["checks"]:
        print(f"{check['name']}: {check['value']} {check['op']} {check['bound']}: {'met' if check['ok'] else 'short'}")
    return 0 if all(check["ok"] for check in results["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
