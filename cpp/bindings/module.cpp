#include "bindings.hpp"
#include "lynx/cuda.hpp"
#include "lynx/version.hpp"

namespace lynx::bindings {

NB_MODULE(_core, m) {
    m.doc() = "Lynx's C++ core.";
#ifdef NDEBUG
    // What a daemon thread still holds when the interpreter ends is never let go of; the process ends anyway.
    nb::set_leak_warnings(false);
#endif
    const auto string = [](std::string_view s) { return nb::str(s.data(), s.size()); };
    m.attr("__version__") = string(version());
    m.attr("build_description") = string(build_description());
    m.attr("cuda_description") = string(cuda_description());
    bind_error(m);
    bind_executor(m);
    bind_codec(m);
    bind_device(m);
    bind_cuda(m);
    bind_fabric(m);
    bind_manifest(m);
    bind_metrics(m);
    bind_node(m);
    bind_plane_sender(m);
    bind_plane_receiver(m);
    bind_preshared_key(m);
    bind_peer(m);
    bind_shards(m);
    bind_session(m);
    bind_sampler(m);
}

}  // namespace lynx::bindings
