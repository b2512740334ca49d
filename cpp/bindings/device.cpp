#include "lynx/device.hpp"

#include <nanobind/stl/shared_ptr.h>

#include "bindings.hpp"

namespace lynx::bindings {

void bind_device(nb::module_& m) {
    nb::enum_<MemoryKind>(m, "MemoryKind", "What memory is.")
        .value("HOST", MemoryKind::kHost, "Pageable.")
        .value("PINNED", MemoryKind::kPinned, "Host memory that a device copies to and from by itself.")
        .value("CUDA", MemoryKind::kCuda, "Of a CUDA device.");
    nb::class_<Device>(m, "Device", "A device that codes, for Node; from open_cuda_device.")
        .def_prop_ro("number", &Device::number, "As CUDA counts devices.");
}

}  // namespace lynx::bindings
