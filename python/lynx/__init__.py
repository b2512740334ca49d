"""Progressive KV-cache streaming for disaggregated LLM serving.

The C++ core under the same names as in C++: `Node`, `Listener` and `Peer` connect two processes, `PlaneSender` and
`PlaneReceiver` stream a cache described by a `Manifest`, `Codec` turns tensors into bit-planes and back, `CudaCodec`
does so on a CUDA device, and `Session` keeps the ledger of drafted and committed tokens. Policies are in
`lynx.policies`, the decode loop is in `lynx.runtime`, and the engine for transformers in `lynx.engines.transformers`.

Tensors are anything that speaks DLPack or the buffer protocol; nothing is copied. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import os
from pathlib import Path

# Debian's libfabric pulls in libinfinipath, which would take over SIGINT, SIGTERM and others as it is loaded: Ctrl-C
# would end the process on the spot.
os.environ.setdefault("IPATH_NO_BACKTRACE", "1")

from lynx._core import (
    DEFAULT_KEY_ANCHOR_BITS,
    DEFAULT_SINK_TOKENS,
    DEFAULT_VALUE_ANCHOR_BITS,
    MANIFEST_VERSION,
    MAX_SINK_TOKENS,
    ArenaFull,
    AuthenticationFailed,
    Cancelled,
    Codec,
    Coding,
    ConnectionFailed,
    CorruptData,
    CudaCodec,
    CudaError,
    DType,
    EncodeStats,
    Error,
    Extent,
    FabricError,
    Grant,
    InvalidArgument,
    Listener,
    Manifest,
    ManifestTensor,
    Node,
    Peer,
    PeerLimits,
    PeerLost,
    PeerOptions,
    PlaneLayout,
    PlaneReceiver,
    PlaneSender,
    PresharedKey,
    ProtocolError,
    ProviderInfo,
    Revision,
    SendProgress,
    Session,
    SessionState,
    Snapshot,
    Tally,
    TensorRole,
    TensorSpec,
    ThreadPool,
    Timeout,
    Unsupported,
    Verdict,
    __version__,
    build_description,
    cuda_description,
    fabric_version,
    list_providers,
)


def cmake_dir() -> Path:
    """The prefix for CMAKE_PREFIX_PATH, under which `find_package(lynx CONFIG)` finds this installation."""
    return Path(__file__).resolve().parent


__all__ = [
    "DEFAULT_KEY_ANCHOR_BITS",
    "DEFAULT_SINK_TOKENS",
    "DEFAULT_VALUE_ANCHOR_BITS",
    "MANIFEST_VERSION",
    "MAX_SINK_TOKENS",
    "ArenaFull",
    "AuthenticationFailed",
    "Cancelled",
    "Codec",
    "Coding",
    "ConnectionFailed",
    "CorruptData",
    "CudaCodec",
    "CudaError",
    "DType",
    "EncodeStats",
    "Error",
    "Extent",
    "FabricError",
    "Grant",
    "InvalidArgument",
    "Listener",
    "Manifest",
    "ManifestTensor",
    "Node",
    "Peer",
    "PeerLimits",
    "PeerLost",
    "PeerOptions",
    "PlaneLayout",
    "PlaneReceiver",
    "PlaneSender",
    "PresharedKey",
    "ProtocolError",
    "ProviderInfo",
    "Revision",
    "SendProgress",
    "Session",
    "SessionState",
    "Snapshot",
    "Tally",
    "TensorRole",
    "TensorSpec",
    "ThreadPool",
    "Timeout",
    "Unsupported",
    "Verdict",
    "__version__",
    "build_description",
    "cmake_dir",
    "cuda_description",
    "fabric_version",
    "list_providers",
]
