// RAII for what libfabric hands out. Declare handles in the order of opening: they then close in reverse,
// which is the only order that libfabric takes (a parent with open children answers "busy" and leaks).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx::fabric {

template <class Fid>
struct FidClose {
    void operator()(Fid* f) const noexcept { fi_close(&f->fid); }
};
template <class Fid>
using Handle = std::unique_ptr<Fid, FidClose<Fid>>;

struct InfoFree {
    void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
};
using InfoHandle = std::unique_ptr<fi_info, InfoFree>;

/// libfabric's words for a negative return value.
[[nodiscard]] inline std::string reason_of(long result) {
    return fi_strerror(static_cast<int>(result < 0 ? -result : result));
}

/// Throws FabricError "provider: call failed: reason" unless `result` is 0.
inline void check(long result, std::string_view call, std::string_view provider) {
    if (result != 0)
        throw FabricError(text("fabric provider '", provider, "': ", call, " failed: ", reason_of(result)));
}

/// Opens one object through `open(Fid**)` and owns it.
template <class Fid, class Open>
[[nodiscard]] Handle<Fid> open_handle(std::string_view call, std::string_view provider, Open&& open) {
    Fid* raw = nullptr;
    check(open(&raw), call, provider);
    return Handle<Fid>(raw);
}

}  // namespace lynx::fabric
