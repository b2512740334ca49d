#include "lynx/plane_sender.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "bindings.hpp"

namespace lynx::bindings {

void bind_plane_sender(nb::module_& m) {
    nb::enum_<SendClass>(m, "SendClass", "Which chunks go first, over all transfers of a node.")
        .value("ANCHOR", SendClass::kAnchor)
        .value("RESIDUAL", SendClass::kResidual)
        .value("EXACT", SendClass::kExact);
    nb::class_<Priority>(m, "Priority", "A transfer's place among the others, which may change while it runs.")
        .def(
            "__init__",
            [](Priority* self, std::array<SendClass, kTiers> classes, double deadline_s, double weight) {
                const bool none = deadline_s == std::numeric_limits<double>::infinity();
                new (self) Priority{classes, none ? Clock::time_point::max() : deadline_in(deadline_s).at(), weight};
            },
            nb::kw_only(), nb::arg("classes") = Priority{}.classes,
            nb::arg("deadline_s") = std::numeric_limits<double>::infinity(), nb::arg("weight") = 1.0,
            "The class of each tier; by when it should be there, in seconds from now; its share among equals.")
        .def_ro("classes", &Priority::classes)
        .def_ro("weight", &Priority::weight);

    nb::class_<SendProgress>(m, "SendProgress")
        .def_ro("part_bytes", &SendProgress::part_bytes, "Payload bytes of each part of the whole transfer.")
        .def_ro("written_bytes", &SendProgress::written_bytes, "Of them out of this node.")
        .def_ro("resent_bytes", &SendProgress::resent_bytes, "Written once more: lost, damaged, or on a dead rail.")
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
            [](PlaneSender& sender, std::uint32_t layer, TensorRole role, nb::handle source, std::uint32_t first_token,
               std::uint32_t first_head, std::optional<std::uintptr_t> stream) {
                const SourceTensor tensor = borrow_source(source, stream ? Memory::kCuda : Memory::kHost);
                const nb::gil_scoped_release release;
                if (stream)
                    sender.put(layer, role, tensor.view, order_of(*stream), first_token, first_head);
                else
                    sender.put(layer, role, tensor.view, first_token, first_head);
            },
            nb::arg("layer"), nb::arg("role"), nb::arg("source"), nb::kw_only(), nb::arg("first_token") = 0,
            nb::arg("first_head") = 0, nb::arg("stream").none() = nb::none(),
            nb::sig("def put(self, layer: int, role: TensorRole, source: object, *, first_token: int = 0, "
                    "first_head: int = 0, stream: int | None = None) -> None"),
            "Codes one tensor [heads, tokens, head_dim], or that piece of it, and queues it. `source` is read before "
            "this returns. A tensor of the node's device takes a `stream`, in whose order it is read: a cudaStream_t "
            "as an integer, 0 for the default stream; what is put on that stream afterwards may overwrite it.")
        .def("set_priority", &PlaneSender::set_priority, nb::arg("priority"), nb::call_guard<nb::gil_scoped_release>(),
             "Takes effect with the next chunk.")
        .def(
            "wait_written",
            [](PlaneSender& sender, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return sender.wait_written(d); });
            },
            nb::arg("timeout_s"), "Waits until every chunk has left. False if the time is up.")
        .def_prop_ro("progress", &PlaneSender::progress)
        .def("timeline", &PlaneSender::timeline, "When the parts of the tensors left, of those of which anything has.")
        .def_prop_ro("manifest", &PlaneSender::manifest, nb::rv_policy::copy);
}

}  // namespace lynx::bindings
