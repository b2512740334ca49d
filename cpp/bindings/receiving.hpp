// What Python sees of whatever receives a cache, whether in one transfer or in several.
#pragma once

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include "bindings.hpp"
#include "lynx/plane_receiver.hpp"

namespace lynx::bindings {

template <class Receiver>
void bind_receiving(nb::class_<Receiver>& c) {
    c.def_prop_ro("manifest", &Receiver::manifest, nb::rv_policy::copy)
        .def_prop_ro("revision", &Receiver::revision)
        .def_prop_ro(
            "tier", &Receiver::tier,
            "The finest part that is complete for all layers, with every part before it; None before the anchor.")
        .def("ready", nb::overload_cast<unsigned>(&Receiver::ready, nb::const_), nb::arg("part"),
             "Is this part, and each before it, complete for all layers?")
        .def("layer_ready", nb::overload_cast<std::uint32_t, unsigned>(&Receiver::ready, nb::const_), nb::arg("layer"),
             nb::arg("part"))
        .def(
            "wait",
            [](const Receiver& r, unsigned part, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return r.wait(part, d); });
            },
            nb::arg("part"), nb::arg("timeout_s"), "Waits for ready(part). False if the time is up.")
        .def(
            "wait_layer",
            [](const Receiver& r, std::uint32_t layer, unsigned part, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return r.wait(layer, part, d); });
            },
            nb::arg("layer"), nb::arg("part"), nb::arg("timeout_s"))
        .def(
            "wait_newer",
            [](const Receiver& r, std::uint64_t after, double timeout_s) {
                std::optional<Revision> revision;
                (void)interruptible(timeout_s, [&](Deadline d) {
                    revision = r.wait_newer(after, d);
                    return revision->number > after;
                });
                return *revision;
            },
            nb::arg("after"), nb::arg("timeout_s"),
            "The current revision, once it is newer than `after` or the time is up.")
        .def(
            "first_token",
            [](const Receiver& r, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return r.first_token(d); });
            },
            nb::arg("timeout_s"), "The token that prefill sampled, once it is known. None if the time is up.");
}

}  // namespace lynx::bindings
