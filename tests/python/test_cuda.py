"""CudaCodec: without a device it says so; with one its bytes and values are those of Codec."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lynx

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")


def why_not() -> str:
    """Why nothing can be tested on a device here; empty if it can."""
    if not lynx.CudaCodec.available():
        return f"CUDA {lynx.cuda_description}; {lynx.CudaCodec.device()}"
    if not torch.cuda.is_available():
        return "torch has no CUDA"
    return ""


@pytest.fixture
def device() -> Any:
    if reason := why_not():
        pytest.skip(reason)
    return torch.device("cuda")


def test_the_build_and_the_device_are_described() -> None:
    assert lynx.cuda_description == "not built" or "sm_" in lynx.cuda_description
    assert lynx.CudaCodec.device()


def test_host_memory_is_refused_in_words() -> None:
    layout = lynx.PlaneLayout(lynx.TensorSpec(1, 2, 8))
    out = np.zeros(layout.bytes, np.uint8)
    with pytest.raises(lynx.InvalidArgument, match="use Codec"):
        lynx.CudaCodec.encode(torch.zeros(1, 2, 8), layout, out)


def test_the_workspace_of_the_exact_tier_is_small() -> None:
    layout = lynx.PlaneLayout(lynx.TensorSpec(8, 4096, 128, exact=True))
    assert lynx.CudaCodec.exact_workspace_bytes(layout) == 4
    assert lynx.CudaCodec.exact_workspace_bytes(lynx.PlaneLayout(lynx.TensorSpec(8, 4096, 128))) == 0


DTYPES = [
    (lynx.DType.BF16, torch.bfloat16, torch.int16),
    (lynx.DType.F16, torch.float16, torch.int16),
    (lynx.DType.F32, torch.float32, torch.int32),
]


def random_bits(dtype: Any, bits: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Normal values, and one vector in eight of any bits."""
    random = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=random).to(dtype)
    limit = torch.iinfo(bits).max
    values[:, ::8] = torch.randint(-limit, limit, shape, generator=random, dtype=bits).view(dtype)[:, ::8]
    return values


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", [8, 64, 96, 128, 256, 576, 1024])
@pytest.mark.parametrize(("dtype", "torch_dtype", "bits"), DTYPES)
def test_planes_are_those_of_the_cpu(
    device: Any, dtype: lynx.DType, torch_dtype: Any, bits: Any, head_dim: int
) -> None:
    layout = lynx.PlaneLayout(lynx.TensorSpec(3, 67, head_dim, dtype=dtype, sink_tokens=4))
    source = random_bits(torch_dtype, bits, (3, 67, head_dim), head_dim)
    expected = torch.zeros(layout.bytes, dtype=torch.uint8)
    stats = lynx.Codec.best().encode(source, layout, expected)

    coded = torch.zeros(layout.bytes, dtype=torch.uint8, device=device)
    nonfinite = torch.zeros(1, dtype=torch.int64, device=device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    lynx.CudaCodec.encode(source.to(device), layout, coded, stream=stream.cuda_stream, nonfinite_vectors=nonfinite)
    stream.synchronize()
    assert int(nonfinite) == stats.nonfinite_vectors
    assert torch.equal(coded.cpu(), expected)

    for planes in (1, 4, 8):
        want = torch.zeros(3, 67, head_dim, dtype=torch_dtype)
        got = torch.zeros(67, 3, head_dim, dtype=torch_dtype, device=device).transpose(0, 1)
        lynx.Codec.best().decode(layout, expected, planes, want)
        lynx.CudaCodec.decode(layout, coded, planes, got, stream=torch.cuda.current_stream().cuda_stream)
        assert torch.equal(got.cpu().contiguous().view(bits), want.view(bits))


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", [8, 64, 96, 128, 256, 576, 1024])
@pytest.mark.parametrize(("dtype", "torch_dtype", "bits"), DTYPES[:2])
def test_the_exact_tier_is_that_of_the_cpu(
    device: Any, dtype: lynx.DType, torch_dtype: Any, bits: Any, head_dim: int
) -> None:
    layout = lynx.PlaneLayout(lynx.TensorSpec(3, 67, head_dim, dtype=dtype, exact=True))
    source = random_bits(torch_dtype, bits, (3, 67, head_dim), head_dim)
    expected = torch.zeros(layout.bytes, dtype=torch.uint8)
    lynx.Codec.best().encode(source, layout, expected)
    lynx.Codec.best().encode_exact(source, layout, expected)

    on_device = source.to(device)
    coded = torch.zeros(layout.bytes, dtype=torch.uint8, device=device)
    workspace = torch.zeros(lynx.CudaCodec.exact_workspace_bytes(layout), dtype=torch.uint8, device=device)
    out = torch.zeros(3, 67, head_dim, dtype=torch_dtype, device=device)
    fault = torch.zeros(1, dtype=torch.int32, device=device)
    stream = torch.cuda.current_stream().cuda_stream
    lynx.CudaCodec.encode(on_device, layout, coded, stream=stream)
    lynx.CudaCodec.encode_exact(on_device, layout, coded, workspace, stream=stream)
    lynx.CudaCodec.decode_exact(layout, coded, out, fault, stream=stream)
    assert torch.equal(coded.cpu(), expected)
    assert int(fault) == -1
    assert torch.equal(out.cpu().view(bits), source.view(bits))

    index = layout.exact_index.offset
    coded[index : index + 4] = 255
    lynx.CudaCodec.decode_exact(layout, coded, out, fault, stream=stream)
    assert int(fault) == 0
