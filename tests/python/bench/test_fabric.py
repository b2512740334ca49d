"""The fabric's benchmarks: their logic, and small runs that show nothing about speed."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lynx
from bench.fabric import __main__ as command
from bench.fabric import ends, link, loopback, report, shaped
from bench.fabric.ends import EndError, Kind, Pair
from bench.fabric.results import Anchor, Anchors, Goodput, Latency, LinkRun, Results

SOURCES = Path(ends.__file__).parent
NAMESPACES = Path("/run/netns")
MIB = 1 << 20


def goodput(provider: str, **samples: list[float]) -> Goodput:
    return Goodput(provider, MIB, 256 * MIB, samples)


def anchors(rate: int, backlogs: int, *seconds: float, before: int = 1 << 30, left: int = 1) -> Anchors:
    taken = [Anchor(s + 0.1, s, before if backlogs else 0, left if backlogs else 0) for s in seconds]
    return Anchors(rate, backlogs, 1000, taken)


def lines(results: Results) -> list[str]:
    return [check.line() for check in report.checks(results)]


def test_a_ratio_is_the_median_of_the_repetitions_ratios() -> None:
    row = goodput("net", lynx=[1.0, 4.0, 9.0], bare=[2.0, 4.0, 3.0], nixl=[])
    assert row.ratio("lynx", "bare") == 1.0
    assert row.ratio("lynx", "nixl") is None
    assert row.ratio("lynx", "mooncake") is None
    assert row.bytes_per_second("lynx") == 4.0


def test_goodput_is_bounded_by_transport_and_only_against_what_was_measured() -> None:
    results = Results("1.17.0")
    results.goodput = [
        goodput("net", lynx=[0.95], bare=[1.0], nixl=[1.0], mooncake=[0.5]),
        goodput("shm", lynx=[0.9], bare=[1.0], nixl=[2.0]),
        Goodput("net", 4 * MIB, 256 * MIB, {"lynx": [0.1], "bare": [1.0]}),
    ]
    assert lines(results) == [
        "net: goodput over that of bare libfabric: 0.9500, bound >= 0.95: met",
        "net: goodput over that of NIXL over tcp: 0.9500, bound >= 1: short",
        "net: goodput over that of Mooncake over tcp: 1.9000, bound >= 1: met",
        "shm: goodput over that of bare libfabric: 0.9000, bound >= 0.9: met",
    ]


def test_checksums_may_cost_a_twentieth_of_the_goodput() -> None:
    results = Results("1.17.0")
    results.goodput = [Goodput("net", MIB, MIB, {"lynx": [0.94, 0.94], "lynx no-checksums": [1.0, 1.0]})]
    assert lines(results) == ["net: goodput lost to checksums: 0.0600, bound <= 0.05: short"]


def test_of_a_full_frame_all_but_66_bytes_are_payload() -> None:
    assert link.payload_share(1500) == 1448 / 1514
    assert link.payload_share(9000) == 8948 / 9014


def test_the_links_rate_is_compared_with_what_it_counts() -> None:
    results = Results("1.17.0")
    share = link.payload_share(1500)
    results.link = [
        LinkRun("lynx", 10**9, 1500, 1 << 30, 0.97 * share, 0.97),
        LinkRun("lynx", 10**9, 9000, 1 << 30, 0.96, 0.967),
        LinkRun("bare", 10**9, 1500, 1 << 30, 0.1, 0.1),
        LinkRun("lynx", 10**8, 1500, 1 << 27, 0.1, 0.1),
    ]
    assert lines(results) == [
        "1 Gbit/s link, MTU 1500: payload and its headers of the rate: 0.9700, bound >= 0.97: met",
        "1 Gbit/s link, MTU 9000: payload of the rate: 0.9600, bound >= 0.97: short",
    ]


def test_an_anchor_among_residuals_is_compared_with_one_alone_at_the_same_rate() -> None:
    results = Results("1.17.0")
    results.anchors = [
        anchors(10**9, 0, 9.0, 1.0, 1.0),
        anchors(10**9, 8, 5.0, 5.0),
        anchors(10**9, 64, 1.5, 1.2, 1.1),
        anchors(10**8, 64, 1.5, 1.2, 1.1),
    ]
    name = "1 Gbit/s link: an anchor among 64 residuals over its time alone"
    assert lines(results) == [f"{name}: 1.2000, bound <= 1.2: met"]


def test_an_anchor_that_met_too_few_residuals_does_not_count() -> None:
    met, missed = Anchor(2.0, 2.0, 5000, 0), Anchor(1.0, 1.0, 999, 0)
    row = Anchors(10**9, 64, 1000, [met, missed, missed])
    assert row.counted == [met]
    assert (row.from_put, row.worst_from_put) == (2.0, 2.0)
    assert row.ran_dry
    assert Anchors(10**9, 0, 1000, [met, missed]).counted == [missed]  # Alone, the first finds a cold connection.
    none = Anchors(10**9, 64, 1000, [missed, missed])
    assert none.counted == []
    assert math.isnan(none.from_put)
    results = Results("1.17.0", anchors=[anchors(10**9, 0, 1.0, 1.0), none])
    assert lines(results) == []
    assert list(report.tables(results))


def test_backlogs_outlast_the_anchors_that_go_first() -> None:
    for rate in command.RATES:
        for count in (2, 5):
            anchors_bytes = (count + 1) * shaped.ANCHOR_BYTES
            assert shaped.backlog_bytes(rate, count + 1) > anchors_bytes


def test_everything_is_in_the_json() -> None:
    results = Results("1.17.0", notes=["no NIXL"])
    results.goodput = [goodput("net", lynx=[1.0], bare=[2.0])]
    results.latency = [Latency("net", "nixl", None, 2e-5)]
    results.anchors = [anchors(10**9, 0, 1.0, 1.0)]
    written = json.loads(json.dumps(report.to_json(results), allow_nan=False))
    assert written["goodput"][0]["lynx_over"] == {"bare": 0.5}
    assert written["notes"] == ["no NIXL"]
    assert written["checks"] == [
        {"name": "net: goodput over that of bare libfabric", "value": 0.5, "bound": 0.95, "op": ">=", "ok": False}
    ]


def test_peers_that_are_not_installed_are_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    kinds = loopback.contenders(Path("program"), "net", notes.append)
    assert not {"nixl", "mooncake"} & kinds.keys()
    assert [note.split()[0] for note in notes] == ["NIXL", "Mooncake"]


def test_peers_go_over_the_same_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    over_tcp = loopback.contenders(Path("program"), "tcp;ofi_rxm", print)
    assert dict(over_tcp["nixl"].environment) == {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}
    over_shm = loopback.contenders(Path("program"), "shm", print)
    assert over_shm["nixl"].environment == ()
    assert "mooncake" not in over_shm


def test_only_usable_providers_are_measured() -> None:
    found = {"shm": True, "net": True, "tcp": False, "sockets": True}
    assert loopback.usable(None, found) == ["net", "shm"]
    assert loopback.usable(["shm"], found) == ["shm"]
    with pytest.raises(ValueError, match="'tcp' is not usable here"):
        loopback.usable(["tcp"], found)


# Ends as processes. Python stands in for the program.

TALKER = """
import sys
print('{"endpoint": "here"}', flush=True)
for line in sys.stdin:
    word = line.split()[0]
    if word == 'die':
        sys.exit('no more memory')
    if word == 'fail':
        print('{"error": "it broke"}', flush=True)
    elif word == 'peer':
        print('{"connected": true}', flush=True)
    elif word != 'hang':
        print('{"waiting": true}\\n{"start_ns": 1000, "end_ns": 2000}', flush=True)
"""


def talker(pauses: bool = False) -> Kind:
    return Kind("talker", (sys.executable, "-c", TALKER, "ROLE"), pauses=pauses)


@pytest.mark.processes
def test_what_an_end_says_went_wrong_is_an_error_with_its_name() -> None:
    for command_, expected in (("fail", "it broke"), ("die", "is gone: no more memory")):
        end = talker().start("send")
        try:
            assert end.hear()["endpoint"] == "here"
            end.tell(command_)
            with pytest.raises(EndError, match=rf"talker \(send\).*{expected}"):
                end.hear()
        finally:
            end.close()


@pytest.mark.processes
def test_an_end_that_does_not_answer_is_an_error_and_is_ended() -> None:
    end = talker().start("receive")
    end.hear()
    end.tell("hang")
    with pytest.raises(EndError, match=r"has not answered for 0\.2 s"):
        end.hear(0.2)
    end.close()
    assert not Path(f"/proc/{end.pid}").exists()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.mark.processes
def test_ends_that_never_rest_are_stopped_while_others_are_measured() -> None:
    with Pair.of(talker(pauses=True)) as pair:
        pids = (pair.sender.pid, pair.receiver.pid)
        deadline = time.monotonic() + 10
        while {state_of(pid) for pid in pids} != {"T"} and time.monotonic() < deadline:
            time.sleep(0.01)
        assert {state_of(pid) for pid in pids} == {"T"}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.processes
def test_a_contender_that_fails_is_out_with_a_note_and_lynx_is_an_error() -> None:
    notes: list[str] = []
    broken = Kind("broken", (sys.executable, "-c", "raise SystemExit('no device')", "ROLE"))
    with loopback.Contest.of({"lynx": talker(), "nixl": broken}, notes.append) as contest:
        assert list(contest.pairs) == ["lynx"]
    [note] = notes
    assert note.startswith("nixl was not measured")
    assert "no device" in note
    with pytest.raises(EndError, match="no device"), loopback.Contest.of({"lynx": broken}, notes.append):
        pass


# The link. Everything that is made has this process's number in its name.


@pytest.fixture
def own_namespaces() -> Iterator[None]:
    reason = link.unavailable()
    if reason:
        pytest.skip(reason)
    try:
        with link.shaped(10**9, 1500):
            pass
    except link.LinkUnavailableError as e:
        pytest.skip(f"this system does not let root make the link: {e}")
    yield
    assert not namespaces_of(os.getpid())


def namespaces_of(pid: int) -> list[str]:
    return [entry.name for entry in NAMESPACES.iterdir() if f"lynxbench{pid}" in entry.name]


@pytest.mark.usefixtures("own_namespaces")
def test_a_link_is_gone_after_an_interrupt() -> None:
    def interrupted() -> None:
        with link.shaped(10**9, 9000) as made:
            assert sorted(namespaces_of(os.getpid())) == sorted(made.names)
            show = ["tc", "-n", made.names[0], "qdisc"]
            shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
            assert "tbf" in shown
            assert "1Gbit" in shown
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not namespaces_of(os.getpid())


@pytest.mark.usefixtures("own_namespaces")
def test_only_what_a_dead_run_has_left_is_removed() -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead, living, foreign = f"lynxbench{gone.stdout.strip()}a", f"lynxbench{os.getppid()}a", f"other{os.getpid()}a"
    try:
        for name in (dead, living, foreign):
            subprocess.run(["ip", "netns", "add", name], check=True)
        link.remove_stale()
        assert not (NAMESPACES / dead).exists()
        assert (NAMESPACES / living).exists()
        assert (NAMESPACES / foreign).exists()
    finally:
        for name in (dead, living, foreign):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_without_root_the_link_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert link.unavailable() == "network namespaces need root"
    with pytest.raises(link.LinkUnavailableError, match="need root"), link.shaped(10**9, 1500):
        pass


@pytest.mark.processes
@pytest.mark.usefixtures("own_namespaces")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_no_namespace_and_no_process(
    program: Path, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ["--program", str(program), "--only", "anchors", "--json", str(tmp_path / "fabric.json")]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.fabric", *arguments], cwd=ends.ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while len(children := children_of(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(namespaces_of(process.pid)) == 2
        process.send_signal(number)
        _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    assert words.rstrip().endswith("bench.fabric: interrupted")
    assert not namespaces_of(process.pid)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def children_of(pid: int) -> list[int]:
    """Those that are ends by now."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if name_of(child) == "lynx_bench_fabr"]


def name_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # It has ended.
        return ""


# Small real runs.


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ ends, built against the package as installed."""
    if shutil.which("c++") is None:
        pytest.skip("c++ is not installed")
    prefix = Path(lynx.cmake_dir())
    path = tmp_path_factory.mktemp("bench") / "lynx_bench_fabric"
    sources = [str(source) for source in sorted(SOURCES.glob("*.cpp"))]
    libraries = [f"-L{prefix / 'lib'}", f"-Wl,-rpath,{prefix / 'lib'}", "-llynx", "-lfabric", "-pthread"]
    build = ["c++", "-std=c++20", f"-I{prefix / 'include'}", *sources, *libraries, "-o", str(path)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds, not minutes; and without the peers, whose ports and threads are theirs."""
    monkeypatch.setattr(loopback, "TOTAL_BYTES", 4 * MIB)
    monkeypatch.setattr(loopback, "_ROUND_TRIPS", 20)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(shaped, "ANCHOR_BYTES", 1 * MIB)
    monkeypatch.setattr(shaped, "transfer_bytes", lambda rate: 8 * MIB)


@pytest.mark.processes
@pytest.mark.usefixtures("small")
def test_the_command_measures_prints_the_bounds_last_and_writes_json(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = loopback.usable(None, {p.name: p.usable for p in lynx.list_providers()})[0]
    file = tmp_path / "fabric.json"
    arguments = ["--program", str(program), "--json", str(file), "--provider", provider, "--seconds", "0"]
    assert command.main([*arguments, "--only", "goodput", "--only", "latency"]) == 0
    result: dict[str, Any] = json.loads(file.read_text())
    [row] = result["goodput"]
    assert {"lynx", "bare"} <= row["samples"].keys()
    assert all(len(samples) >= 5 and min(samples) > 0 for samples in row["samples"].values())
    assert {one["contender"]: one["arrival"] > 0 for one in result["latency"]}["lynx"]
    last = capsys.readouterr().out.splitlines()[-len(result["checks"]) :]
    for line, check in zip(last, result["checks"], strict=True):
        assert line.startswith(check["name"])
        assert line.endswith("met" if check["ok"] else "short")


@pytest.mark.processes
@pytest.mark.usefixtures("small", "own_namespaces")
def test_transfers_and_anchors_go_over_the_link(program: Path) -> None:
    usable = {p.name for p in lynx.list_providers() if p.usable}
    provider = next(name for name in shaped.PROVIDER_ORDER if name in usable)
    rate = 2 * 10**8
    with link.shaped(rate, 1500) as made:
        run = shaped.transfer(made, program, provider, "lynx")
        assert 0 < run.payload_of_rate < run.frames_of_rate < 1.2  # The link lets nobody be faster.
    with link.shaped(rate, 1500) as made:
        steps: list[float] = []
        row = shaped.anchors(made, program, provider, 2, 1, steps.append)
        assert len(row.anchors) == 2
        assert all(one.from_offer >= one.from_put > 0 for one in row.anchors)
        assert steps[-1] == 1


@pytest.mark.processes
def test_a_program_that_is_not_there_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--program", "no/such/program"]) == 1
    assert "make bench-fabric" in capsys.readouterr().err
