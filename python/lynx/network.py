"""Which of this machine's addresses a peer sees."""

from __future__ import annotations

import socket

from lynx._core import ConnectionFailed


def local_address(host: str, port: int) -> str:
    """The address of this machine from which `host` is reached. Sends nothing. Raises `ConnectionFailed`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as e:
        raise ConnectionFailed(f"cannot reach {host}:{port}: {e.strerror or e}; check the name and the route") from e
