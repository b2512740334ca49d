// DLPack and buffer-protocol objects to views.
#include <nanobind/stl/string.h>

#include <cmath>
#include <string>

#include "bindings.hpp"
#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx::bindings {

namespace {

std::string as_text(nb::handle object) {
    return nb::cast<std::string>(nb::str(object));
}

void check_device(int type, Memory memory, nb::handle object, const char* what) {
    const bool cuda = type == nb::device::cuda::value || type == nb::device::cuda_managed::value;
    if (memory == Memory::kHost && type != nb::device::cpu::value)
        throw InvalidArgument(text(what, " lies on device type ", type, " (", describe(object),
                                   "); this reads and writes host memory: move it to the CPU first",
                                   cuda ? ", name its stream, or use CudaCodec" : ""));
    if (memory == Memory::kCuda && !cuda)
        throw InvalidArgument(text(what, " lies on device type ", type, " (", describe(object),
                                   "); with a stream, and by CudaCodec, the memory of a CUDA device is read and "
                                   "written: move it there first, or use Codec or no stream"));
}

template <class Array>
Array import_array(nb::handle object, Memory memory, const char* what) {
    Array array;
    if (!nb::try_cast<Array>(object, array))
        throw InvalidArgument(text(what, " was given as ", describe(object), "; it has to be a tensor in ",
                                   memory == Memory::kHost ? "host" : "CUDA",
                                   " memory that gives itself out through DLPack or the buffer protocol, and a "
                                   "writable one to decode into (for torch: .detach()",
                                   memory == Memory::kHost ? ".cpu())" : ")"));
    check_device(array.device_type(), memory, object, what);
    return array;
}

DType dtype_of(nb::dlpack::dtype t, nb::handle object) {
    const auto code = static_cast<nb::dlpack::dtype_code>(t.code);
    if (t.lanes == 1 && code == nb::dlpack::dtype_code::Bfloat && t.bits == 16) return DType::kBF16;
    if (t.lanes == 1 && code == nb::dlpack::dtype_code::Float && t.bits == 16) return DType::kF16;
    if (t.lanes == 1 && code == nb::dlpack::dtype_code::Float && t.bits == 32) return DType::kF32;
    throw InvalidArgument(text("a tensor was given as ", describe(object), "; its dtype has to be bf16, fp16 or fp32"));
}

template <class View, class Array>
BorrowedTensor<View, Array> borrow_tensor(nb::handle object, Memory memory) {
    auto array = import_array<Array>(object, memory, "a tensor");
    if (array.ndim() != 3)
        throw InvalidArgument(text("a tensor was given with ", array.ndim(), " axes (", describe(object),
                                   "); it has to have three: [heads, tokens, head_dim]"));
    View view;
    view.dtype = dtype_of(array.dtype(), object);
    using Byte = std::remove_pointer_t<decltype(view.data)>;
    view.data = static_cast<Byte*>(array.data());
    for (std::size_t i = 0; i < 3; ++i) {
        view.shape[i] = static_cast<std::int64_t>(array.shape(i));
        view.strides[i] = array.stride(i);
    }
    return {std::move(array), view};
}

template <class Array, class Span>
std::pair<Array, Span> borrow_flat(nb::handle object, Memory memory) {
    auto array = import_array<Array>(object, memory, "a byte buffer");
    const auto t = array.dtype();
    if (array.ndim() != 1 || t.bits != 8 || (array.shape(0) > 1 && array.stride(0) != 1))
        throw InvalidArgument(text("a byte buffer was given as ", describe(object),
                                   "; it has to be one-dimensional, contiguous and of 8-bit elements"));
    using Byte = typename Span::element_type;
    const Span span(static_cast<Byte*>(array.data()), array.shape(0));
    return {std::move(array), span};
}

}  // namespace

std::string describe(nb::handle object) {
    std::string out = as_text(object.type());
    for (const char* name : {"device", "dtype", "shape"})
        if (nb::hasattr(object, name)) out += text(", ", name, "=", as_text(nb::object(object.attr(name))));
    return out;
}

SourceTensor borrow_source(nb::handle object, Memory memory) {
    return borrow_tensor<TensorView, nb::ndarray<nb::ro>>(object, memory);
}
DestinationTensor borrow_destination(nb::handle object, Memory memory) {
    return borrow_tensor<MutableTensorView, nb::ndarray<>>(object, memory);
}

std::pair<nb::ndarray<nb::ro>, ConstByteSpan> borrow_bytes(nb::handle object, Memory memory) {
    return borrow_flat<nb::ndarray<nb::ro>, ConstByteSpan>(object, memory);
}
std::pair<nb::ndarray<>, ByteSpan> borrow_writable_bytes(nb::handle object, Memory memory) {
    return borrow_flat<nb::ndarray<>, ByteSpan>(object, memory);
}

std::pair<nb::ndarray<>, void*> borrow_number(nb::handle object, std::size_t bytes, Memory memory) {
    auto array = import_array<nb::ndarray<>>(object, memory, "a number");
    if (array.size() != 1 || array.itemsize() != bytes)
        throw InvalidArgument(text("a number was given as ", describe(object),
                                   "; it has to be a tensor of one element of ", bytes, " bytes"));
    void* data = array.data();
    return {std::move(array), data};
}

Deadline deadline_in(double timeout_s) {
    constexpr double kYear = 365.0 * 24 * 3600;
    if (std::isnan(timeout_s) || timeout_s < 0)
        throw InvalidArgument(text("a timeout of ", timeout_s, " seconds; it has to be 0 or more"));
    return Deadline::after(
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(timeout_s, kYear))));
}

}  // namespace lynx::bindings
