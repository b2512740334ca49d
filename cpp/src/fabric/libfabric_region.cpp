#include <sys/random.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "fabric/libfabric.hpp"

namespace lynx::fabric {
namespace {

/// A key that no region has by chance and that no peer guesses: it is what opens this memory to writes.
std::uint64_t random_key(std::size_t key_bytes) {
    std::uint64_t key = 0;
    if (getrandom(&key, sizeof(key), 0) != sizeof(key))
        throw FabricError(text("no random key for a memory region (getrandom): ", std::strerror(errno)));
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
    return register_kind(memory, access, nullptr);
}

std::string Libfabric::why_no_device_memory() const {
    if ((info->caps & FI_HMEM) != 0) return {};
    return text("fabric provider '", name, "' of libfabric ", fabric_version(), " does not grant FI_HMEM here");
}

std::unique_ptr<MemoryRegionBackend> Libfabric::register_device_memory(ByteSpan memory, MemoryAccess access,
                                                                       const MemoryDevice& device) {
    // Without the capability libfabric would take the memory for the host's.
    const std::string refusal = why_no_device_memory();
    if (!refusal.empty()) throw FabricError(refusal);
    return register_kind(memory, access, &device);
}

namespace {

#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
/// By the dmabuf that the device makes of its memory. False if it makes none, or the provider does not take it.
template <class Register>
bool register_dmabuf(const fi_info& info, ByteSpan memory, const MemoryDevice& device, fi_mr_attr attributes,
                     Register try_register) {
    if (FI_VERSION_LT(info.fabric_attr->api_version, FI_VERSION(1, 20))) return false;  // an older library
    const auto exported = device.export_dmabuf(memory);
    if (!exported) return false;
    const fi_mr_dmabuf dmabuf{exported->file(), exported->offset(), memory.size(), memory.data() - exported->offset()};
    attributes.dmabuf = &dmabuf;
    return try_register(attributes, FI_MR_DMABUF) == 0;
}
#else
template <class Register>
bool register_dmabuf(const fi_info&, ByteSpan, const MemoryDevice&, const fi_mr_attr&, Register) {
    return false;
}
#endif

}  // namespace

std::unique_ptr<MemoryRegionBackend> Libfabric::register_kind(ByteSpan memory, MemoryAccess access,
                                                              const MemoryDevice* device) {
    constexpr int kKeyTries = 8;
    const bool remote = access == MemoryAccess::kRemoteWrite;
    const std::string_view kind = device != nullptr ? " bytes of CUDA memory" : " bytes of memory";
    const iovec where{memory.data(), memory.size()};
    fi_mr_attr attributes{};
    attributes.mr_iov = &where;
    attributes.iov_count = 1;
    attributes.access = FI_WRITE | (remote ? FI_REMOTE_WRITE : 0);
    attributes.iface = device != nullptr ? FI_HMEM_CUDA : FI_HMEM_SYSTEM;
    if (device != nullptr) attributes.device.cuda = device->number();
    fid_mr* opened = nullptr;
    const auto try_register = [&](fi_mr_attr attr, std::uint64_t flags) {
        int status = -FI_ENOKEY;
        for (int i = 0; i < kKeyTries && status == -FI_ENOKEY; ++i) {
            attr.requested_key = provider_keys() ? 0 : random_key(info->domain_attr->mr_key_size);
            status = fi_mr_regattr(domain.get(), &attr, flags, &opened);
        }
        return status;
    };
    const bool by_dmabuf = device != nullptr && register_dmabuf(*info, memory, *device, attributes, try_register);
    const int result = by_dmabuf ? 0 : try_register(attributes, 0);
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
