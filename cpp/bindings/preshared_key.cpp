#include "lynx/preshared_key.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string_view.h>

#include <filesystem>

#include "bindings.hpp"

namespace lynx::bindings {

void bind_preshared_key(nb::module_& m) {
    nb::class_<PresharedKey>(m, "PresharedKey",
                             "The secret that the nodes of one cluster share: whoever has it is a peer.")
        .def_static(
            "from_bytes", [](const nb::bytes& secret) { return PresharedKey::from_bytes(span_of(secret)); },
            nb::arg("secret"), "The secret itself: 32 random bytes or more.")
        .def_static("from_text", &PresharedKey::from_text, nb::arg("text"),
                    "The secret as hexadecimal digits or base64.")
        .def_static(
            "from_file", [](const std::filesystem::path& path) { return PresharedKey::from_file(path.string()); },
            nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
            nb::sig("def from_file(path: str | os.PathLike[str]) -> PresharedKey"),
            "The text in a file, on which nobody but its owner may have a permission.")
        .def_static(
            "generate_file", [](const std::filesystem::path& path) { PresharedKey::generate_file(path.string()); },
            nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
            nb::sig("def generate_file(path: str | os.PathLike[str]) -> None"),
            "Writes a new random key into a new file that its owner alone may read.");
}

}  // namespace lynx::bindings
