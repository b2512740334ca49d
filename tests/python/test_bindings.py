"""The C++ core as Python sees it. What it computes is tested in C++; here is what crosses the border."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import lynx
from lynx import _core

torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")

SPEC = lynx.TensorSpec(2, 5, 16)


def coded(source: Any, layout: lynx.PlaneLayout) -> np.ndarray[Any, Any]:
    out = np.zeros(layout.bytes, np.uint8)
    lynx.Codec.best().encode(source, layout, out)
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch_tensors_of_each_dtype_round_trip(dtype: str) -> None:
    layout = lynx.PlaneLayout(SPEC)
    source = torch.randn(2, 5, 16).to(getattr(torch, dtype))
    out = torch.zeros(2, 5, 16, dtype=getattr(torch, dtype))
    lynx.Codec.best().decode(layout, coded(source, layout), 8, out)
    assert (out - source).abs().max() < 0.05


def test_the_first_tokens_of_an_anchor_are_whole() -> None:
    layout = lynx.PlaneLayout(lynx.TensorSpec(2, 5, 16, anchor_bits=3, sink_tokens=2))
    assert (layout.spec.sink_tokens, layout.sinks.bytes) == (2, 2 * 2 * (8 - 3) * 16 // 8)
    assert "sink_tokens=2" in repr(layout.spec)
    source = torch.randn(2, 5, 16)
    anchor, whole = torch.zeros(2, 5, 16), torch.zeros(2, 5, 16)
    lynx.Codec.best().decode(layout, coded(source, layout), layout.planes_through(0), anchor)
    lynx.Codec.best().decode(layout, coded(source, layout), 8, whole)
    assert (anchor[:, :2] == whole[:, :2]).all()
    assert not (anchor[:, 2:] == whole[:, 2:]).all()


def test_numpy_arrays_and_torch_tensors_give_the_same_bytes() -> None:
    layout = lynx.PlaneLayout(SPEC)
    source = np.random.default_rng(0).normal(size=(2, 5, 16)).astype(np.float32)
    assert (coded(source, layout) == coded(torch.from_numpy(source), layout)).all()


def test_decode_writes_into_the_callers_own_strided_memory() -> None:
    layout = lynx.PlaneLayout(SPEC)
    source = torch.randn(2, 5, 16)
    cache = torch.full((1, 2, 9, 16), 7.0)
    lynx.Codec.best().decode(layout, coded(source, layout), 8, cache[0, :, 2:7])
    assert (cache[0, :, 2:7] - source).abs().max() < 0.05
    assert (cache[0, :, :2] == 7).all()
    assert (cache[0, :, 7:] == 7).all()


def test_head_dim_7_is_an_invalid_argument_that_says_so() -> None:
    with pytest.raises(lynx.InvalidArgument, match=r"head_dim is 7.*multiple of 8") as caught:
        lynx.PlaneLayout(lynx.TensorSpec(1, 1, 7))
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, lynx.Error)


class OnAnotherDevice:
    """A tensor that says through DLPack that it lies on CUDA device 0, as a real one does."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.device = "cuda:0"

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._tensor.__dlpack__()
        name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # DLTensor begins with {void* data; int32 device_type; int32 device_id}.
        address = pointer(capsule, name(capsule))
        ctypes.c_int32.from_address(address + ctypes.sizeof(ctypes.c_void_p)).value = 2
        return capsule


def test_a_tensor_on_the_wrong_device_is_refused_in_words() -> None:
    layout = lynx.PlaneLayout(SPEC)
    out = np.zeros(layout.bytes, np.uint8)
    with pytest.raises(lynx.InvalidArgument, match=r"cuda:0.*move it to the CPU"):
        lynx.Codec.best().encode(OnAnotherDevice(torch.zeros(2, 5, 16)), layout, out)
    with pytest.raises(lynx.InvalidArgument, match="meta"):
        lynx.Codec.best().encode(torch.zeros(2, 5, 16, device="meta"), layout, out)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (np.zeros((2, 5, 16)), "float64"),
        (np.zeros((5, 16), np.float32), "three"),
        (np.zeros((2, 6, 16), np.float32), "tokens"),
        ([1, 2, 3], "list"),
    ],
)
def test_what_cannot_be_a_tensor_is_refused_in_words(source: Any, told: str) -> None:
    with pytest.raises(lynx.InvalidArgument, match=told):
        coded(source, lynx.PlaneLayout(SPEC))


def test_read_only_memory_can_be_coded_but_not_decoded_into() -> None:
    layout = lynx.PlaneLayout(SPEC)
    frozen = np.ones((2, 5, 16), np.float32)
    frozen.flags.writeable = False
    bytes_of = coded(frozen, layout)
    with pytest.raises(lynx.InvalidArgument):
        lynx.Codec.best().decode(layout, bytes_of, 8, frozen)
    assert (frozen == 1).all()


def test_a_provider_that_is_not_there_lists_what_was_found() -> None:
    with pytest.raises(lynx.FabricError) as caught:
        lynx.Node("efa")
    for provider in lynx.list_providers():
        assert provider.name in str(caught.value)


def test_an_arena_too_small_says_what_was_asked_and_what_is_there() -> None:
    node = lynx.Node(arena_bytes=4096)
    manifest = lynx.Manifest(1, [lynx.ManifestTensor(0, lynx.TensorRole.KEY, lynx.TensorSpec(2, 500, 64))])
    with pytest.raises(lynx.ArenaFull, match=rf"{manifest.slot_bytes} bytes was asked for.*arena has 4096") as caught:
        lynx.PlaneReceiver(node, manifest)
    assert isinstance(caught.value, MemoryError)


def test_an_address_for_two_rails_is_refused() -> None:
    for more in (["127.0.0.1"], ["127.0.0.2", "127.0.0.2"]):
        with pytest.raises(lynx.InvalidArgument, match=rf"{more[0]} was given twice"):
            lynx.Node(host="127.0.0.1", arena_bytes=4096, more_hosts=more)


def test_a_port_that_is_taken_is_named() -> None:
    node = lynx.Node(arena_bytes=4096)
    listener = lynx.Listener(node, "127.0.0.1", 0)
    with pytest.raises(lynx.ConnectionFailed, match=rf"127\.0\.0\.1:{listener.port}.*in use"):
        lynx.Listener(node, "127.0.0.1", listener.port)


def test_a_manifest_comes_back_from_its_bytes() -> None:
    tensors = [lynx.ManifestTensor(0, lynx.TensorRole.VALUE, SPEC)]
    manifest = lynx.Manifest(9, tensors, model="m", first_token=3, chunk_bytes=1 << 16)
    again = lynx.Manifest.parse(manifest.serialize())
    assert again == manifest
    assert again.tensors[0].spec == SPEC
    with pytest.raises(lynx.ProtocolError):
        lynx.Manifest.parse(manifest.serialize()[:-9])


def test_all_that_the_extension_has_is_in_the_package() -> None:
    assert {name for name in dir(_core) if not name.startswith("_")} <= set(lynx.__all__)


def test_what_people_print_says_what_it_is() -> None:
    node = lynx.Node(arena_bytes=1 << 20)
    manifest = lynx.Manifest(9, [lynx.ManifestTensor(0, lynx.TensorRole.VALUE, SPEC)], model="m")
    told = f"{manifest} {manifest.tensors[0].spec} {lynx.PlaneReceiver(node, manifest).revision} {lynx.Snapshot(committed=3)}"
    for part in ("request 9", "head_dim=16", "anchor 0 of", "committed=3"):
        assert part in told


def test_timeouts_have_to_be_times() -> None:
    listener = lynx.Listener(lynx.Node(arena_bytes=4096), "127.0.0.1", 0)
    assert listener.accept(0) is None
    for nonsense in (-1.0, float("nan")):
        with pytest.raises(lynx.InvalidArgument, match="timeout"):
            listener.accept(nonsense)
