#include <random>
#include <utility>

#include "fabric/fabric_impl.hpp"

namespace lynx {
namespace {

/// A key that no region has by chance and that no peer guesses: it is what opens this memory to writes.
std::uint64_t random_key(std::size_t key_bytes) {
    std::random_device random;
    const std::uint64_t key = (std::uint64_t{random()} << 32) | random();
    return key_bytes >= sizeof(key) ? key : key & ((std::uint64_t{1} << (8 * key_bytes)) - 1);
}

}  // namespace

struct MemoryRegion::Impl {
    std::shared_ptr<Fabric::Impl> owner;  // first in, last out
    ByteSpan memory;
    fabric::Handle<fid_mr> mr;
    RemoteRegion remote;
};

MemoryRegion::MemoryRegion(const Fabric& fabric, ByteSpan memory) : impl_(std::make_unique<Impl>()) {
    constexpr int kKeyTries = 8;
    if (memory.empty())
        throw InvalidArgument("a memory region of 0 bytes cannot be registered; pass at least one byte");
    impl_->owner = fabric.impl();
    impl_->memory = memory;
    const auto& owner = *impl_->owner;
    const auto* attributes = owner.info->domain_attr;

    fid_mr* mr = nullptr;
    int result = -FI_ENOKEY;
    for (int i = 0; i < kKeyTries && result == -FI_ENOKEY; ++i) {
        const std::uint64_t key = owner.provider_keys() ? 0 : random_key(attributes->mr_key_size);
        result = fi_mr_reg(owner.domain.get(), memory.data(), memory.size(), FI_WRITE | FI_REMOTE_WRITE, 0, key, 0, &mr,
                           nullptr);
    }
    if (result != 0) {
        throw FabricError(
            text("fabric provider '", owner.name, "': registering ", memory.size(),
                 " bytes of memory failed (fi_mr_reg): ", fabric::reason_of(result),
                 result == -FI_ENOMEM ? "; raise the locked-memory limit (ulimit -l) or register less" : ""));
    }
    impl_->mr.reset(mr);
    const std::uint64_t key = fi_mr_key(mr);
    if (key == FI_KEY_NOTAVAIL) {
        throw FabricError(text("fabric provider '", owner.name, "': registering ", memory.size(),
                               " bytes of memory gave no 64-bit key (fi_mr_key)"));
    }
    const std::uint64_t first = owner.virtual_addresses() ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
    impl_->remote = {first, key, memory.size()};
}

MemoryRegion::MemoryRegion(MemoryRegion&&) noexcept = default;
MemoryRegion& MemoryRegion::operator=(MemoryRegion&&) noexcept = default;
MemoryRegion::~MemoryRegion() = default;

ByteSpan MemoryRegion::memory() const noexcept {
    return impl_->memory;
}
void* MemoryRegion::descriptor() const noexcept {
    return fi_mr_desc(impl_->mr.get());
}
RemoteRegion MemoryRegion::remote() const noexcept {
    return impl_->remote;
}

}  // namespace lynx
