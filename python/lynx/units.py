"""Rates and sizes as people write them."""

from __future__ import annotations

import math
import re

_BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]+?)(?:/s)?\s*", re.ASCII)


def parse_bandwidth(text: str) -> int:
    """Bytes per second from "250Mbit", "1.5Gbit", "30MB" or "30MiB/s"; 0, for no limit, from "unlimited".

    Raises `ValueError`.
    """
    if text.strip().lower() in ("unlimited", "none", "0"):
        return 0
    match = _QUANTITY.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    if match and unit.endswith("b") and not match.group(2).endswith("B"):
        raise ValueError(f"bandwidth {text!r} is ambiguous: write Mbit for bits, MB for bytes")
    if match and unit in _BITS:
        rate = math.floor(float(match.group(1)) * _BITS[unit] / 8)
    elif match and unit in _BYTES:
        rate = math.floor(float(match.group(1)) * _BYTES[unit])
    else:
        raise ValueError(f"bandwidth {text!r} is not understood: write 250Mbit, 1.5Gbit, 30MB or unlimited")
    if rate < 1:
        raise ValueError(f"bandwidth {text!r} is less than a byte per second")
    return rate


def format_bandwidth(bytes_per_second: float) -> str:
    """The reverse, in bits."""
    if bytes_per_second == 0:
        return "unlimited"
    bits = bytes_per_second * 8
    for unit, size in (("Gbit", 10**9), ("Mbit", 10**6), ("kbit", 10**3)):
        if bits >= size:
            return f"{bits / size:g} {unit}/s"
    return f"{bits:g} bit/s"


def parse_endpoint(text: str) -> tuple[str, int]:
    """(host, port) from "host:port", "[::1]:port" or ":port" (loopback). Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"address {text!r} is not understood: write host:port, for example 127.0.0.1:7471")
    return host.strip("[]") or "127.0.0.1", int(port)
