#include "lynx/fabric.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"

namespace lynx::bindings {

void bind_fabric(nb::module_& m) {
    nb::class_<ProviderInfo>(m, "ProviderInfo", "A provider that libfabric offers here, and whether Lynx can use it.")
        .def_ro("name", &ProviderInfo::name)
        .def_ro("version", &ProviderInfo::version)
        .def_ro("usable", &ProviderInfo::usable)
        .def_ro("reason", &ProviderInfo::reason, "Why not, in words; empty if usable.");
    m.def("list_providers", &list_providers, nb::arg("host") = "127.0.0.1", nb::call_guard<nb::gil_scoped_release>(),
          "Everything that libfabric lists, each tried with Lynx's needs at `host`.");
    m.def("fabric_version", &fabric_version, "libfabric's version at run time.");
}

}  // namespace lynx::bindings
