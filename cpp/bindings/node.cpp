#include "lynx/node.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings.hpp"
#include "lynx/error.hpp"

namespace lynx::bindings {

void bind_node(nb::module_& m) {
    nb::enum_<DevicePath>(m, "DevicePath", "How tensors of a node's device travel.")
        .value("NONE", DevicePath::kNone, "Not at all: the arena is host memory.")
        .value("STAGED", DevicePath::kStaged, "Through pinned host memory; copies overlap with kernels.")
        .value("DIRECT", DevicePath::kDirect, "The provider reads and writes the device's memory.");
    nb::class_<Node>(m, "Node",
                     "A process's end of the fabric: one provider, one endpoint with its thread, one registered arena.")
        .def(
            "__init__",
            [](Node* self, const std::string& provider, const std::string& host, std::size_t arena_bytes,
               const std::vector<std::string>& more_hosts, std::uint64_t window_bytes, double floor, MemoryKind memory,
               std::shared_ptr<Device> device) {
                const nb::gil_scoped_release release;
                NodeOptions options;
                options.fabric.provider = provider;
                options.fabric.host = host;
                for (const std::string& more : more_hosts) {
                    if (more == host || std::count(more_hosts.begin(), more_hosts.end(), more) > 1)
                        throw InvalidArgument("more_hosts: the address " + more +
                                              " was given twice; each rail takes one of its own, that of `host` among "
                                              "them");
                    options.more_rails.push_back(options.fabric);
                    options.more_rails.back().host = more;
                }
                options.arena_bytes = arena_bytes;
                options.window_bytes = window_bytes;
                options.floor = floor;
                options.memory = memory;
                options.device = std::move(device);
                new (self) Node(options);
            },
            nb::arg("provider") = "auto", nb::arg("host") = "127.0.0.1",
            nb::arg("arena_bytes") = NodeOptions{}.arena_bytes, nb::kw_only(),
            nb::arg("more_hosts") = std::vector<std::string>{}, nb::arg("window_bytes") = 0,
            nb::arg("floor") = NodeOptions{}.floor, nb::arg("memory") = MemoryKind::kHost,
            nb::arg("device").none() = nb::none(),
            "`more_hosts` are further local addresses, each a rail of its own. `window_bytes` pins what may be on its "
            "way to one peer over one rail; 0 goes by what is measured. `floor` is the share of bytes that each lower "
            "class keeps while higher ones have something to send. `memory` is what the arena is made of: PINNED and "
            "CUDA take a `device`, whose tensors may then be sent and received.")
        .def_prop_ro("device_path", &Node::device_path, "Which of them it is, found out at start by a registration.")
        .def_prop_ro("why_not_direct", &Node::why_not_direct, "Why that is not DIRECT, in words; empty if it is.")
        .def_prop_ro("rails", &Node::rails)
        .def_prop_ro("provider", &Node::provider)
        .def_prop_ro("address", [](const Node& node) { return to_bytes(node.address()); })
        .def(
            "add_peer", [](Node& node, const nb::bytes& address) { return node.add_peer(span_of(address)); },
            nb::arg("address"), "Makes a peer's address blob known; for embedders that carry it themselves.")
        .def("remove_peer", &Node::remove_peer, nb::arg("peer"))
        .def("metrics", &Node::metrics, "What was counted since the node was made.")
        .def_prop_ro("arena_bytes", &Node::arena_bytes)
        .def_prop_ro("arena_free_bytes", &Node::arena_free_bytes);
}

}  // namespace lynx::bindings
