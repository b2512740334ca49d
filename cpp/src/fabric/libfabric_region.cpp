#include <sys/random.h>

#include <cerrno>
#include <cstring>
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
    constexpr int kKeyTries = 8;
    const bool remote = access == MemoryAccess::kRemoteWrite;
    fid_mr* opened = nullptr;
    int result = -FI_ENOKEY;
    for (int i = 0; i < kKeyTries && result == -FI_ENOKEY; ++i) {
        const std::uint64_t key = provider_keys() ? 0 : random_key(info->domain_attr->mr_key_size);
        result = fi_mr_reg(domain.get(), memory.data(), memory.size(), FI_WRITE | (remote ? FI_REMOTE_WRITE : 0), 0,
                           key, 0, &opened, nullptr);
    }
    if (result != 0) {
        throw FabricError(
            text("fabric provider '", name, "': registering ", memory.size(),
                 " bytes of memory failed (fi_mr_reg): ", reason_of(result),
                 result == -FI_ENOMEM ? "; raise the locked-memory limit (ulimit -l) or register less" : ""));
    }
    Handle<fid_mr> region(opened);
    if (!remote) return std::make_unique<LibfabricRegion>(shared_from_this(), std::move(region), RemoteRegion{});
    const std::uint64_t key = fi_mr_key(region.get());
    if (key == FI_KEY_NOTAVAIL) {
        throw FabricError(text("fabric provider '", name, "': registering ", memory.size(),
                               " bytes of memory gave no 64-bit key (fi_mr_key)"));
    }
    const std::uint64_t first = virtual_addresses() ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
    return std::make_unique<LibfabricRegion>(shared_from_this(), std::move(region),
                                             RemoteRegion{first, key, memory.size()});
}

}  // namespace lynx::fabric
