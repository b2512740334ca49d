#include "lynx/cuda.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings.hpp"

namespace lynx::bindings {

namespace {

/// Carries the methods, which are all static: there is nothing to hold.
struct CudaCodec {};

cuda::Stream stream_of(std::uintptr_t handle) {
    return reinterpret_cast<cuda::Stream>(handle);  // NOLINT(performance-no-int-to-ptr): Python has handles as integers
}

void encode(nb::handle source, const PlaneLayout& layout, nb::handle out, std::uintptr_t stream,
            nb::handle nonfinite_vectors) {
    const SourceTensor tensor = borrow_source(source, Memory::kCuda);
    const auto [owner, bytes] = borrow_writable_bytes(out, Memory::kCuda);
    std::pair<nb::ndarray<>, void*> count{};
    if (!nonfinite_vectors.is_none()) count = borrow_number(nonfinite_vectors, sizeof(std::uint64_t), Memory::kCuda);
    const nb::gil_scoped_release release;
    cuda::encode(tensor.view, layout, bytes, stream_of(stream), static_cast<std::uint64_t*>(count.second));
}

void decode(const PlaneLayout& layout, nb::handle source, unsigned planes, nb::handle out, std::uintptr_t stream) {
    const auto [owner, bytes] = borrow_bytes(source, Memory::kCuda);
    const DestinationTensor tensor = borrow_destination(out, Memory::kCuda);
    const nb::gil_scoped_release release;
    cuda::decode(layout, bytes, planes, tensor.view, stream_of(stream));
}

void encode_exact(nb::handle source, const PlaneLayout& layout, nb::handle coded, nb::handle workspace,
                  std::uintptr_t stream) {
    const SourceTensor tensor = borrow_source(source, Memory::kCuda);
    const auto [owner, bytes] = borrow_writable_bytes(coded, Memory::kCuda);
    const auto [workspace_owner, workspace_bytes] = borrow_writable_bytes(workspace, Memory::kCuda);
    const nb::gil_scoped_release release;
    cuda::encode_exact(tensor.view, layout, bytes, workspace_bytes, stream_of(stream));
}

void decode_exact(const PlaneLayout& layout, nb::handle coded, nb::handle out, nb::handle first_fault,
                  std::uintptr_t stream) {
    const auto [owner, bytes] = borrow_bytes(coded, Memory::kCuda);
    const DestinationTensor tensor = borrow_destination(out, Memory::kCuda);
    const auto [fault_owner, fault] = borrow_number(first_fault, sizeof(std::uint32_t), Memory::kCuda);
    const nb::gil_scoped_release release;
    cuda::decode_exact(layout, bytes, tensor.view, static_cast<std::uint32_t*>(fault), stream_of(stream));
}

}  // namespace

void bind_cuda(nb::module_& m) {
    m.def("open_cuda_device", &cuda::open_device, nb::arg("number") = 0, nb::call_guard<nb::gil_scoped_release>(),
          "A device for Node. Raises Unsupported without CUDA, InvalidArgument for a number that is none.");
    nb::class_<CudaCodec> codec(
        m, "CudaCodec",
        "The codec on a CUDA device. Every call puts its kernels on `stream` (a cudaStream_t as an integer; for torch "
        "torch.cuda.current_stream().cuda_stream) and returns; tensors lie on one device, with adjacent elements, and "
        "stay as they are until the stream has passed. `coded` begins at a multiple of 16 bytes, a workspace at one of "
        "4. "
        "Raises Unsupported without CUDA, CudaError where the runtime refuses.");
    codec.attr("NO_FAULT") = cuda::kNoFault;
    codec.def_static("available", &cuda::available, "Was CUDA built in, and is there a device? Starts the driver.")
        .def_static("device", &cuda::device_description,
                    "The current device's name and architecture, or why there is none.")
        .def_static("encode", &encode, nb::arg("source"), nb::arg("layout"), nb::arg("out"), nb::kw_only(),
                    nb::arg("stream") = 0, nb::arg("nonfinite_vectors").none() = nb::none(),
                    nb::sig("def encode(source: object, layout: PlaneLayout, out: object, *, stream: int = 0, "
                            "nonfinite_vectors: object | None = None) -> None"),
                    "As Codec.encode. `nonfinite_vectors`, a tensor of one 64-bit integer, is set to their number.")
        .def_static("decode", &decode, nb::arg("layout"), nb::arg("source"), nb::arg("planes"), nb::arg("out"),
                    nb::kw_only(), nb::arg("stream") = 0,
                    nb::sig("def decode(layout: PlaneLayout, source: object, planes: int, out: object, *, "
                            "stream: int = 0) -> None"),
                    "As Codec.decode.")
        .def_static("exact_workspace_bytes", &cuda::exact_workspace_bytes, nb::arg("layout"),
                    "How many bytes of workspace encode_exact takes.")
        .def_static("encode_exact", &encode_exact, nb::arg("source"), nb::arg("layout"), nb::arg("coded"),
                    nb::arg("workspace"), nb::kw_only(), nb::arg("stream") = 0,
                    nb::sig("def encode_exact(source: object, layout: PlaneLayout, coded: object, workspace: object, "
                            "*, stream: int = 0) -> None"),
                    "As Codec.encode_exact. The payload takes 8 times the last entry of the index.")
        .def_static("decode_exact", &decode_exact, nb::arg("layout"), nb::arg("coded"), nb::arg("out"),
                    nb::arg("first_fault"), nb::kw_only(), nb::arg("stream") = 0,
                    nb::sig("def decode_exact(layout: PlaneLayout, coded: object, out: object, first_fault: object, "
                            "*, stream: int = 0) -> None"),
                    "As Codec.decode_exact. `first_fault`, a tensor of one 32-bit integer, is set to the first group "
                    "whose bytes no encoder writes, or to NO_FAULT (-1 as a signed one): look at it before `out` is "
                    "used.");
}

}  // namespace lynx::bindings
