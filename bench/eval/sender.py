"""The prefill side as a process of its own: sends caches from the store to one peer, in the coding that it asks for.

`python -m bench.eval.sender PROVIDER HOST` prints the port that it listens on, as JSON. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import lynx
from lynx.modes import coding_from_json
from lynx.transfer import make_manifest, send_cache

from .store import StoredCache, read

WAIT_S = 3600.0
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the peer leaves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    provider, host = sys.argv[1:3]
    node = lynx.Node(provider, host)
    listener = lynx.Listener(node, host, 0, allow_unauthenticated=True)
    print(json.dumps({"port": listener.port}), flush=True)
    peer = listener.accept(WAIT_S)
    if peer is None:
        return
    loaded: tuple[str, StoredCache] | None = None
    try:
        while (message := peer.receive_message(WAIT_S)) is not None:
            request = json.loads(message)
            if "load" in request:
                if loaded is None or loaded[0] != request["load"]:
                    loaded = None  # Two of them need not fit.
                    loaded = (request["load"], read(Path(request["load"])))
                peer.send_message(b"loaded")
            elif loaded is not None:
                _send(peer, loaded[1], request)
    except lynx.PeerLost:
        pass


def _send(peer: lynx.Peer, cache: StoredCache, request: dict[str, Any]) -> None:
    shapes = [(keys.shape[0], keys.shape[2]) for keys, _ in cache.layers]
    manifest = make_manifest(
        shapes,
        cache.layers[0][0].shape[1],
        coding_from_json(request),
        request_id=request["request_id"],
        model="eval",
        first_token=request["first_token"],
    )
    try:
        send_cache(peer, manifest, cache.layers, bytes_per_second=request["bytes_per_second"])
    except (lynx.Cancelled, lynx.Timeout, lynx.ProtocolError) as e:
        print(f"request {request['request_id']} was not finished: {e}", file=sys.stderr)


if __name__ == "__main__":
    main()
    os._exit(0)  # Without the libraries' destructors, some of which wait for the other end.
