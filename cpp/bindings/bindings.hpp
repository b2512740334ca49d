// What the bindings share. One file a public header; each has one function, named here and called by module.cpp.
// Python sees the same names as C++ does; times are seconds, sizes are bytes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "lynx/buffer.hpp"
#include "lynx/deadline.hpp"
#include "lynx/device.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::bindings {

namespace nb = nanobind;

void bind_error(nb::module_& m);
void bind_executor(nb::module_& m);
void bind_codec(nb::module_& m);
void bind_cuda(nb::module_& m);
void bind_device(nb::module_& m);
void bind_fabric(nb::module_& m);
void bind_manifest(nb::module_& m);
void bind_metrics(nb::module_& m);
void bind_node(nb::module_& m);
void bind_plane_sender(nb::module_& m);
void bind_plane_receiver(nb::module_& m);
void bind_preshared_key(nb::module_& m);
void bind_peer(nb::module_& m);
void bind_sampler(nb::module_& m);
void bind_session(nb::module_& m);
void bind_shards(nb::module_& m);

/// Where what is borrowed has to lie.
enum class Memory : std::uint8_t { kHost, kCuda };

/// A tensor of [heads, tokens, head_dim] through DLPack or the buffer protocol, without a copy. The array object keeps
/// the memory alive and has to outlive the view. Throws InvalidArgument for other memory and for unknown dtypes.
template <class View, class Array>
struct BorrowedTensor {
    Array array;
    View view;
};
using SourceTensor = BorrowedTensor<TensorView, nb::ndarray<nb::ro>>;
using DestinationTensor = BorrowedTensor<MutableTensorView, nb::ndarray<>>;

/// Type, device, dtype and shape of what was given, for an error.
[[nodiscard]] std::string describe(nb::handle object);
[[nodiscard]] SourceTensor borrow_source(nb::handle object, Memory memory = Memory::kHost);
[[nodiscard]] DestinationTensor borrow_destination(nb::handle object, Memory memory = Memory::kHost);

/// A CUDA stream that Python names by its handle, a cudaStream_t as an integer, and what its absence means: a tensor of
/// the host.
[[nodiscard]] inline OnDevice order_of(std::uintptr_t stream) {
    return {reinterpret_cast<void*>(stream)};  // NOLINT(performance-no-int-to-ptr)
}

/// One-dimensional bytes, writable or not.
[[nodiscard]] std::pair<nb::ndarray<nb::ro>, ConstByteSpan> borrow_bytes(nb::handle object,
                                                                         Memory memory = Memory::kHost);
[[nodiscard]] std::pair<nb::ndarray<>, ByteSpan> borrow_writable_bytes(nb::handle object,
                                                                       Memory memory = Memory::kHost);

/// A writable tensor of one element of so many bytes.
[[nodiscard]] std::pair<nb::ndarray<>, void*> borrow_number(nb::handle object, std::size_t bytes, Memory memory);

[[nodiscard]] inline nb::bytes to_bytes(ConstByteSpan bytes) {
    return nb::bytes(bytes.data(), bytes.size());
}
[[nodiscard]] inline ConstByteSpan span_of(const nb::bytes& bytes) {
    return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

/// Seconds from now; throws InvalidArgument if negative or not a number. Infinity is a year.
[[nodiscard]] Deadline deadline_in(double timeout_s);

/// Runs `attempt(Deadline)` without the GIL in slices until it gives something or the time is up, so that Ctrl-C ends
/// the wait as Python users expect.
template <class Attempt>
auto interruptible(double timeout_s, Attempt attempt) {
    const Deadline deadline = deadline_in(timeout_s);
    for (;;) {
        auto result = [&] {
            const nb::gil_scoped_release release;
            return attempt(Deadline(std::min(deadline.at(), Clock::now() + std::chrono::milliseconds(50))));
        }();
        if (result || deadline.passed()) return result;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
}

}  // namespace lynx::bindings
