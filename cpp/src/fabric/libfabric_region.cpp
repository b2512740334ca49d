#include <sys/uio.h>

#include <random>
#include <string_view>
#include <utility>

#include "fabric/libfabric.hpp"

namespace lynx::fabric {
namespace {

/// A key that no region has by chance and that no peer guesses: it is what opens this memory to writes.
std::uint64_t random_key(std::size_t key_bytes) {
    std::random_device random;
    const std::uint64_t key = (std::uint64_t{random()} << 32) | random();
    return key_bytes >= sizeof(key) ? key : key & ((std::uint64_t{1} << (8 * key_bytes)) - 1);
}

class LibfabricRegion final : public MemoryRegionBackend {
   public:
    LibfabricRegion(std::shared_ptr<Libfabric> owner, Handle<fid_mr> region, const RemoteRegion& remote)
        : owner_(std::move(owner)), region_(std::move(region)), remote_(remote) {}

    [[nodiscard]] void* descriptor() const noexcept override { return fi_mr_desc(region_.get()); }
    [[nodiscard]] RemoteRegion remote() const noexcept override { return remote_; }

   private:
    std::shared_ptr<Libfabric> owner_;  // first in, last out
    Handle<fid_mr> region_;
    RemoteRegion remote_;
};

}  // namespace

std::unique_ptr<MemoryRegionBackend> Libfabric::register_memory(ByteSpan memory, MemoryAccess access) {
    return register_kind(memory, access, std::nullopt);
}

std::string Libfabric::why_no_device_memory() const {
    if ((info->caps & FI_HMEM) != 0) return {};
    return text("fabric provider '", name, "' of libfabric ", fabric_version(), " does not grant FI_HMEM here");
}

std::unique_ptr<MemoryRegionBackend> Libfabric::register_device_memory(ByteSpan memory, MemoryAccess access,
                                                                       int device) {
    const std::string refusal = why_no_device_memory();
    if (!refusal.empty()) throw FabricError(refusal);
    return register_kind(memory, access, device);
}

std::unique_ptr<MemoryRegionBackend> Libfabric::register_kind(ByteSpan memory, MemoryAccess access,
                                                              std::optional<int> device) {
    constexpr int kKeyTries = 8;
    const bool remote = access == MemoryAccess::kRemoteWrite;
    const std::string_view kind = device ? " bytes of CUDA memory" : " bytes of memory";
    const iovec where{memory.data(), memory.size()};
    fi_mr_attr attributes{};
    attributes.mr_iov = &where;
    attributes.iov_count = 1;
    attributes.access = FI_WRITE | (remote ? FI_REMOTE_WRITE : 0);
    // Of CUDA memory the provider takes the dmabuf itself, if its libfabric and the driver have it.
    attributes.iface = device ? FI_HMEM_CUDA : FI_HMEM_SYSTEM;
    if (device) attributes.device.cuda = *device;
    fid_mr* opened = nullptr;
    int result = -FI_ENOKEY;
    for (int i = 0; i < kKeyTries && result == -FI_ENOKEY; ++i) {
        attributes.requested_key = provider_keys() ? 0 : random_key(info->domain_attr->mr_key_size);
        result = fi_mr_regattr(domain.get(), &attributes, 0, &opened);
    }
    if (result != 0) {
        throw FabricError(
            text("fabric provider '", name, "': registering ", memory.size(), kind,
                 " failed (fi_mr_regattr): ", reason_of(result),
                 result == -FI_ENOMEM ? "; raise the locked-memory limit (ulimit -l) or register less" : ""));
    }
    Handle<fid_mr> region(opened);
    if (!remote) return std::make_unique<LibfabricRegion>(shared_from_this(), std::move(region), RemoteRegion{});
    const std::uint64_t key = fi_mr_key(region.get());
    if (key == FI_KEY_NOTAVAIL) {
        throw FabricError(
            text("fabric provider '", name, "': registering ", memory.size(), kind, " gave no 64-bit key (fi_mr_key)"));
    }
    const std::uint64_t first = virtual_addresses() ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
    return std::make_unique<LibfabricRegion>(shared_from_this(), std::move(region),
                                             RemoteRegion{first, key, memory.size()});
}

}  // namespace lynx::fabric
