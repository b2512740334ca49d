"""`python bench/gpu_check.py`: are the CUDA kernels right on this machine's device, and how fast are they?

Builds the check program of `bench/gpu` for the device that is there (nvcc, CMake and a C++ compiler are all it takes),
runs it, prints a table and writes `build/bench/gpu_check.json`. It compares every kernel with the CPU bit for bit and
times it against a device copy of as many bytes as its source has. Where libfabric, libsodium, FlatBuffers and xxHash
are installed it also sends a cache from the device's memory to the device's memory, over shm and tcp, with pinned and
with CUDA arenas, and says which path each took. Build and run together end within four minutes: what has not finished
by then is stopped, and the exit code is 1. Without a device it says so and ends with exit code 0. It needs nothing but
Python's standard library.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
NO_DEVICE = 77  # of bench/gpu/main.cu
TIME_LIMIT_S = 240  # for all of it
RUN_S = 60  # of that, what building leaves for the run


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


def run(command: Sequence[str | Path], deadline: float, stdout: IO[str] | int) -> tuple[int, str]:
    """The command's exit code and, if `stdout` is a pipe, its output.

    At `deadline` (of time.monotonic) it is killed with all that it has started, for a build's compilers would go on
    without it, and subprocess.TimeoutExpired is raised.
    """
    with subprocess.Popen(command, stdout=stdout, text=True, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0))
        except BaseException:  # An interrupt too: what runs in a session of its own does not hear of it.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output or ""


def build(folder: Path, architectures: str, deadline: float) -> Path:
    """The check program, built by `deadline` for these architectures ("90", or several as "80;90")."""
    configure: list[str | Path] = ["cmake", "-S", ROOT / "bench/gpu", "-B", folder, "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"]
    if not shutil.which("nvcc") and "CUDACXX" not in os.environ and Path("/usr/local/cuda/bin/nvcc").is_file():
        configure += ["-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc"]
    # Without the libraries of the transfers the kernels can be checked all the same.
    configures = [[*configure, f"-DLYNX_GPU_TRANSFERS={transfers}"] for transfers in ("ON", "OFF")]
    if all(run(command, deadline, sys.stderr)[0] != 0 for command in configures):
        raise subprocess.CalledProcessError(1, configures[-1])
    jobs = str(os.cpu_count() or 2)
    compiling: list[str | Path] = ["cmake", "--build", folder, "--parallel", jobs]
    code, _ = run(compiling, deadline, sys.stderr)
    if code != 0:
        raise subprocess.CalledProcessError(code, compiling)
    return folder / "lynx_gpu_check"


def to_checks(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each kind of result and each transfer: nothing may differ."""
    parts = [(part["name"], part) for part in results["identity"]]
    parts += [(f"{t['path']} transfer over {t['provider']}, {t['memory']} memory", t) for t in results["transfers"]]
    return [
        {
            "name": f"gpu: {name}, differing of {part['compared']} compared",
            "value": part["differing"],
            "bound": 0,
            "op": "<=",
            "ok": part["differing"] == 0 and part["compared"] > 0,
        }
        for name, part in parts
    ]


def table(results: dict[str, Any]) -> str:
    """The kernels' speeds: GB/s of source bytes, and the fraction of a device copy's speed; then the transfers."""
    lines = [f"{results['device']}; {results['build']}", "", "kernel              head_dim     GB/s   of a copy"]
    for kernel in results["kernels"]:
        speed = kernel["source_bytes"] / kernel["milliseconds"] / 1e6
        fraction = kernel["copy_milliseconds"] / kernel["milliseconds"]
        lines.append(f"{kernel['name']:<20}{kernel['head_dim']:>8} {speed:>8.0f} {fraction:>11.2f}")
    if not results["transfers"]:
        lines += ["", "transfers: skipped: built without libfabric, libsodium, FlatBuffers and xxHash"]
        return "\n".join(lines)
    lines += ["", "transfer  arena asked for    GB/s   path"]
    for transfer in results["transfers"]:
        speed = transfer["source_bytes"] / transfer["milliseconds"] / 1e6 if transfer["milliseconds"] else 0
        path = f"{transfer['path']}: {transfer['why']}" if transfer["why"] else transfer["path"]
        lines.append(f"{transfer['provider']:<10}{transfer['memory']:<15} {speed:>7.2f}   {path}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Build, check, time; the exit code: 0, also without a device; 1 if something differs or failed."""
    parser = argparse.ArgumentParser(prog="bench/gpu_check.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--program", type=Path, help="a check program that is built already")
    parser.add_argument("--build-only", metavar="ARCHITECTURES", help='build for these, "80;90", and run nothing')
    parser.add_argument("--source-bytes", type=int, default=1 << 30, help="of each tensor that is timed (1 GiB)")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/gpu_check.json", help="where results go")
    arguments = parser.parse_args(argv)
    deadline = time.monotonic() + TIME_LIMIT_S
    folder = ROOT / "build/gpu_check"
    try:
        if arguments.build_only:
            print(build(folder, arguments.build_only, deadline))
            return 0
        architecture = compute_capability()
        if architecture is None:
            print("skipped: no CUDA device")
            return 0
        program = arguments.program or build(folder, architecture, deadline - RUN_S)
        code, output = run([program, str(arguments.source_bytes)], deadline, subprocess.PIPE)
    except (OSError, subprocess.SubprocessError) as e:
        print(f"gpu_check: {e}", file=sys.stderr)
        return 1
    if code == NO_DEVICE:
        print("skipped: no CUDA device")
        return 0
    if not output:
        return 1
    results = json.loads(output)
    results["checks"] = to_checks(results)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(table(results))
    for check in results["checks"]:
        print(f"{check['name']}: {check['value']} {check['op']} {check['bound']}: {'met' if check['ok'] else 'short'}")
    return 0 if all(check["ok"] for check in results["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
