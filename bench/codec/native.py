"""Runs the program lynx_bench_codec."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from .results import Results, parse


def run(program: Path, full: bool, on_progress: Callable[[int, int], None]) -> Results:
    """Run it to its end; `on_progress` gets how many of how many benchmarks are done, after each.

    Raises `OSError` if it cannot be started, `ValueError` if it is not there or fails, with its last words.
    """
    if not program.is_file():
        raise ValueError(f"{program} is not there: `make bench-codec` builds it")
    command = [str(program.resolve()), *(["--full"] if full else [])]
    listed = subprocess.run([*command, "--benchmark_list_tests"], check=False, capture_output=True, text=True)
    total = len(listed.stdout.splitlines())
    if listed.returncode != 0 or total == 0:
        raise ValueError(f"{program} lists no benchmarks: {_last_line(listed.stderr)}")
    on_progress(0, total)
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+") as errors:
        out = Path(folder) / "report.json"
        command += [f"--benchmark_out={out}", "--benchmark_out_format=json", "--benchmark_color=false"]
        done = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if "_median " in line:  # Printed once all repetitions are done.
                        done += 1
                        on_progress(done, total)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            errors.seek(0)
            raise ValueError(f"{program} ended with {process.returncode}: {_last_line(errors.read())}")
        return parse(json.loads(out.read_text()))


def _last_line(words: str) -> str:
    return next(reversed(words.strip().splitlines()), "no message")
