"""`lynx info`: what this build is and what it can use here."""

from __future__ import annotations

import platform
from typing import Any

import lynx


def collect(host: str = "127.0.0.1") -> dict[str, Any]:
    """Version, build, instruction sets, providers and CUDA, as it stands in the JSON."""
    try:
        auto = lynx.Node("auto", host, arena_bytes=4096).provider
    except lynx.FabricError:
        auto = "none"
    return {
        "version": lynx.__version__,
        "build": lynx.build_description,
        "python": platform.python_version(),
        "isa": lynx.Codec.best().name,
        "isas": list(lynx.Codec.available()),
        "libfabric": lynx.fabric_version(),
        "auto_provider": auto,
        "providers": [
            {"name": p.name, "version": p.version, "usable": p.usable, "reason": p.reason}
            for p in lynx.list_providers(host)
        ],
        "cuda": f"{lynx.cuda_description}; {lynx.CudaCodec.device()}",
        "cmake_dir": str(lynx.cmake_dir()),
    }
