"""Tensors of a device: without one it is said in words; with one a cache goes from device to device."""

from __future__ import annotations

from typing import Any

import pytest

import lynx

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")

HEADS, TOKENS, HEAD_DIM, LAYERS = 2, 300, 64, 3
ROLES = (lynx.TensorRole.KEY, lynx.TensorRole.VALUE)


def why_not() -> str:
    """Why nothing can be tested on a device here; empty if it can."""
    if not lynx.CudaCodec.available():
        return f"CUDA {lynx.cuda_description}; {lynx.CudaCodec.device()}"
    if not torch.cuda.is_available():
        return "torch has no CUDA"
    return ""


def manifest(*, exact: bool) -> lynx.Manifest:
    spec = lynx.TensorSpec(HEADS, TOKENS, HEAD_DIM, exact=exact)
    tensors = [lynx.ManifestTensor(layer, role, spec) for layer in range(LAYERS) for role in ROLES]
    return lynx.Manifest(1, tensors, context_tokens=TOKENS, parts=3 if exact else 2, checksums=exact)


def test_a_node_of_host_memory_says_that_no_tensors_of_a_device_go_over_it() -> None:
    node = lynx.Node(arena_bytes=1 << 20)
    assert node.device_path == lynx.DevicePath.NONE
    assert "host memory" in node.why_not_direct


def test_an_arena_of_pinned_memory_takes_a_device() -> None:
    with pytest.raises(lynx.InvalidArgument, match="no device is given"):
        lynx.Node(arena_bytes=1 << 20, memory=lynx.MemoryKind.PINNED)


def test_a_stream_is_named_for_tensors_of_a_device_alone() -> None:
    node = lynx.Node(arena_bytes=1 << 20)
    receiver = lynx.PlaneReceiver(node, manifest(exact=False))
    sender = lynx.PlaneSender(node, node.add_peer(node.address), receiver.manifest, receiver.grant)
    source = torch.zeros(HEADS, TOKENS, HEAD_DIM, dtype=torch.bfloat16)
    with pytest.raises(lynx.InvalidArgument, match="no stream"):
        sender.put(0, lynx.TensorRole.KEY, source, stream=0)
    assert receiver.wait_decoded(0)


@pytest.mark.skipif(lynx.CudaCodec.available(), reason="there is a CUDA device")
def test_without_cuda_no_device_opens() -> None:
    with pytest.raises(lynx.Unsupported):
        lynx.open_cuda_device()


@pytest.mark.gpu
@pytest.mark.parametrize("memory", [lynx.MemoryKind.PINNED, lynx.MemoryKind.CUDA])
@pytest.mark.parametrize("provider", ["auto", "shm"])
def test_a_cache_goes_from_device_to_device(provider: str, memory: lynx.MemoryKind) -> None:
    if reason := why_not():
        pytest.skip(reason)
    device = lynx.open_cuda_device()
    nodes = [lynx.Node(provider, arena_bytes=64 << 20, memory=memory, device=device) for _ in range(2)]
    staged = nodes[0].device_path == lynx.DevicePath.STAGED
    assert bool(nodes[0].why_not_direct) == staged
    prefill, decode = nodes
    receiver = lynx.PlaneReceiver(decode, manifest(exact=staged))
    sender = lynx.PlaneSender(prefill, prefill.add_peer(decode.address), receiver.manifest, receiver.grant)
    stream = torch.cuda.current_stream().cuda_stream
    places = [(layer, role) for layer in range(LAYERS) for role in ROLES]
    sources: list[Any] = []
    for layer, role in places:
        sources.append(torch.randn(HEADS, TOKENS, HEAD_DIM, dtype=torch.bfloat16, device="cuda"))
        sender.put(layer, role, sources[-1], stream=stream)
    part = receiver.manifest.parts - 1
    assert receiver.wait(part, 20)
    for (layer, role), source in zip(places, sources, strict=True):
        out = torch.zeros_like(source)
        receiver.decode(layer, role, part, out, stream=stream)
        if staged:
            assert torch.equal(out, source), "the exact tier"
        else:
            assert (out - source).abs().max() < 0.1
    assert receiver.wait_decoded(20)
