#include "lynx/plane_sender.hpp"

#include <nanobind/stl/array.h>

#include "bindings.hpp"

namespace lynx::bindings {

void bind_plane_sender(nb::module_& m) {
    nb::class_<SendProgress>(m, "SendProgress")
        .def_ro("part_bytes", &SendProgress::part_bytes, "Payload bytes of each part of the whole transfer.")
        .def_ro("written_bytes", &SendProgress::written_bytes, "Of them out of this node.")
        .def_ro("nonfinite_vectors", &SendProgress::nonfinite_vectors);

    nb::class_<PlaneSender>(
        m, "PlaneSender",
        "The sending half of a transfer: codes tensors into registered memory and streams them, anchors first.")
        .def(
            "__init__",
            [](PlaneSender* self, const Node& node, PeerId peer, const Manifest& manifest, const Grant& grant,
               std::uint64_t bytes_per_second) {
                new (self) PlaneSender(node, peer, manifest, grant, {.bytes_per_second = bytes_per_second});
            },
            nb::arg("node"), nb::arg("peer"), nb::arg("manifest"), nb::arg("grant"), nb::kw_only(),
            nb::arg("bytes_per_second") = 0)
        .def(
            "put",
            [](PlaneSender& sender, std::uint32_t layer, TensorRole role, nb::handle source) {
                const SourceTensor tensor = borrow_source(source);
                const nb::gil_scoped_release release;
                sender.put(layer, role, tensor.view);
            },
            nb::arg("layer"), nb::arg("role"), nb::arg("source"),
            nb::sig("def put(self, layer: int, role: TensorRole, source: object) -> None"),
            "Codes one tensor [heads, tokens, head_dim] and queues it. `source` is read before this returns.")
        .def(
            "wait_written",
            [](PlaneSender& sender, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return sender.wait_written(d); });
            },
            nb::arg("timeout_s"), "Waits until every chunk has left. False if the time is up.")
        .def_prop_ro("progress", &PlaneSender::progress)
        .def_prop_ro("manifest", &PlaneSender::manifest, nb::rv_policy::copy);
}

}  // namespace lynx::bindings
