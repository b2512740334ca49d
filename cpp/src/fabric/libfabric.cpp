#include "fabric/libfabric.hpp"

#include <cstdlib>
#include <cstring>

#include "fabric/provider.hpp"
#include "fabric/shm_name.hpp"

namespace lynx::fabric {

Libfabric::Libfabric(const FabricOptions& options)
    : info(choose_provider(options)), name(info->fabric_attr->prov_name) {
    if (name == "shm") remove_stale_shm_files();
    root = open_handle<fid_fabric>("fi_fabric", name,
                                   [&](fid_fabric** f) { return fi_fabric(info->fabric_attr, f, nullptr); });
    domain = open_handle<fid_domain>("fi_domain", name,
                                     [&](fid_domain** d) { return fi_domain(root.get(), info.get(), d, nullptr); });
}

bool Libfabric::delivery_complete() const noexcept {
    return (info->tx_attr->op_flags & FI_DELIVERY_COMPLETE) != 0;
}

bool Libfabric::virtual_addresses() const noexcept {
    return (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
}

bool Libfabric::provider_keys() const noexcept {
    return (info->domain_attr->mr_mode & FI_MR_PROV_KEY) != 0;
}

InfoHandle Libfabric::endpoint_info() const {
    InfoHandle copy(fi_dupinfo(info.get()));
    if (!copy) throw FabricError(text("fabric provider '", name, "': fi_dupinfo failed: out of memory"));
    if (name == "shm") {
        const std::string address = "fi_shm://" + make_shm_name();
        std::free(copy->src_addr);
        copy->src_addr = strdup(address.c_str());
        copy->src_addrlen = address.size() + 1;
    }
    return copy;
}

}  // namespace lynx::fabric
