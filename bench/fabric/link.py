"""Two network namespaces joined by a link of a known rate. Needs root, ip and tc; touches only what it has made.

The rate is kept by tbf on both ends. It counts the frames as they leave, Ethernet, IP and TCP headers included and a
segmented write as its segments: 66 bytes of each full frame are no payload (14 + 20 + 20 + 12 of TCP's time stamps).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 66
ETHERNET_BYTES = 14
_PREFIX = "lynxbench"  # Then the number of the process that made it, and which of the two it is.
_NAMESPACES = Path("/run/netns")
_ADDRESSES = ("10.231.7.1", "10.231.7.2")


class LinkUnavailableError(Exception):
    """Why there can be no such link here."""


@dataclass(frozen=True, slots=True)
class Link:
    """Its two sides: how to run a command there, and the address it has."""

    names: tuple[str, str]
    bits_per_second: int
    mtu: int
    addresses: tuple[str, str] = _ADDRESSES

    def prefix(self, side: int) -> list[str]:
        """What runs a command on that side. It is the command that is started, not a child of it."""
        return ["ip", "netns", "exec", self.names[side]]

    @property
    def payload_share(self) -> float:
        """Of the counted bytes of full frames, those that are payload."""
        return payload_share(self.mtu)


def payload_share(mtu: int) -> float:
    """Of the bytes that tbf counts of a full TCP frame, those that are payload."""
    return (mtu - (HEADER_BYTES - ETHERNET_BYTES)) / (mtu + ETHERNET_BYTES)


def unavailable() -> str | None:
    """Why there can be no link here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"the command {tool} is not there (Debian: iproute2)"
    return None


def remove_stale() -> None:
    """Remove what a killed run of this bench has left; what a living one uses stays."""
    if not _NAMESPACES.is_dir():
        return
    for name in sorted(entry.name for entry in _NAMESPACES.iterdir()):
        made_by = re.fullmatch(rf"{_PREFIX}(\d+)[ab]", name)
        if made_by and not Path(f"/proc/{made_by[1]}").exists():
            _run("ip", "netns", "del", name)


@contextlib.contextmanager
def shaped(bits_per_second: int, mtu: int) -> Iterator[Link]:
    """A link as long as the context lasts.

    Raises `LinkUnavailableError` with the reason if the system refuses. The veth pair goes with its namespaces.
    """
    reason = unavailable()
    if reason:
        raise LinkUnavailableError(reason)
    remove_stale()
    names = (f"{_PREFIX}{os.getpid()}a", f"{_PREFIX}{os.getpid()}b")
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        _run("ip", "-n", names[0], "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", names[1])
        for name, address in zip(names, _ADDRESSES, strict=True):
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
            _run("ip", "-n", name, "link", "set", "veth0", "mtu", str(mtu), "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            rate = f"{bits_per_second}bit"
            tbf = ("tbf", "rate", rate, "burst", "256k", "latency", "20ms")
            _run("tc", "-n", name, "qdisc", "add", "dev", "veth0", "root", *tbf)
        yield Link(names, bits_per_second, mtu)
    finally:
        for name in names:
            if (_NAMESPACES / name).exists():
                _run("ip", "netns", "del", name)


def _run(*command: str) -> None:
    # In a session of its own, so that Ctrl-C does not reach it: what is being cleaned up is cleaned up.
    done = subprocess.run(command, check=False, capture_output=True, text=True, start_new_session=True)
    if done.returncode != 0:
        raise LinkUnavailableError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
