#include "lynx/plane_receiver.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <numeric>

#include "bindings.hpp"
#include "core/text.hpp"
#include "receiving.hpp"

namespace lynx::bindings {

void bind_plane_receiver(nb::module_& m) {
    nb::class_<Revision>(m, "Revision", "What is complete, at one moment.")
        .def_ro("number", &Revision::number, "Grows by one with each tensor's part that becomes complete.")
        .def_ro("tensors_ready", &Revision::tensors_ready)
        .def_ro("arrived_bytes", &Revision::arrived_bytes)
        .def_ro("part_bytes", &Revision::part_bytes)
        .def("__repr__", [](const Revision& r) {
            const auto behind = [](const auto& bytes) {
                return std::accumulate(bytes.begin() + 1, bytes.end(), std::uint64_t{0});
            };
            return text("Revision(", r.number, ", anchor ", r.arrived_bytes[0], " of ", r.part_bytes[0],
                        " bytes, behind it ", behind(r.arrived_bytes), " of ", behind(r.part_bytes), ")");
        });

    nb::class_<PlaneReceiver> receiver(
        m, "PlaneReceiver",
        "The receiving half of a transfer: a slot, the count of what has arrived, and its decoding.");
    receiver
        .def(
            "__init__",
            [](PlaneReceiver* self, const Node& node, const Manifest& manifest, std::uint64_t bytes_per_second) {
                new (self) PlaneReceiver(node, manifest, {.bytes_per_second = bytes_per_second});
            },
            nb::arg("node"), nb::arg("manifest"), nb::kw_only(), nb::arg("bytes_per_second") = 0)
        .def_prop_ro("grant", &PlaneReceiver::grant)
        .def("timeline", &PlaneReceiver::timeline,
             "When the parts of the tensors came, of those of which anything has.")
        .def("set_first_token", &PlaneReceiver::set_first_token, nb::arg("token"),
             nb::call_guard<nb::gil_scoped_release>(), "Tells it, once, where the manifest has none; Peer does.")
        .def(
            "decode",
            [](const PlaneReceiver& r, std::uint32_t layer, TensorRole role, unsigned part, nb::handle out,
               std::optional<std::uintptr_t> stream) {
                const DestinationTensor tensor = borrow_destination(out, stream ? Memory::kCuda : Memory::kHost);
                const nb::gil_scoped_release release;
                if (stream)
                    r.decode(layer, role, part, tensor.view, order_of(*stream));
                else
                    r.decode(layer, role, part, tensor.view);
            },
            nb::arg("layer"), nb::arg("role"), nb::arg("part"), nb::arg("out"), nb::kw_only(),
            nb::arg("stream").none() = nb::none(),
            nb::sig("def decode(self, layer: int, role: TensorRole, part: int, out: object, *, "
                    "stream: int | None = None) -> None"),
            "Decodes a tensor from all planes through `part` into `out` [heads, tokens, head_dim], in place. A tensor "
            "of the node's device takes a `stream`, in whose order it is written: a cudaStream_t as an integer, 0 for "
            "the default stream. Keep it until wait_decoded.")
        .def(
            "wait_decoded",
            [](const PlaneReceiver& r, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return r.wait_decoded(d); });
            },
            nb::arg("timeout_s"),
            "Waits for the end of all decoding on the device. False if the time is up. Raises what went wrong with "
            "it.");
    bind_receiving(receiver);
}

}  // namespace lynx::bindings
