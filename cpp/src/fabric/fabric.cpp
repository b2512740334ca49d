// The public classes: each forwards to the backend that its Fabric has.
#include "lynx/fabric.hpp"

#include <utility>

#include "core/text.hpp"
#include "fabric/libfabric.hpp"
#include "lynx/error.hpp"

namespace lynx {

Fabric::Fabric(const FabricOptions& options)
    : Fabric(options.backend != nullptr ? options.backend : std::make_shared<fabric::Libfabric>(options)) {}

Fabric::Fabric(std::shared_ptr<FabricBackend> backend) : backend_(std::move(backend)) {
    if (backend_ == nullptr)
        throw InvalidArgument("a fabric needs a backend; pass one, or FabricOptions for libfabric");
}

const std::string& Fabric::provider() const noexcept {
    return backend_->provider();
}

bool Fabric::delivery_complete() const noexcept {
    return backend_->delivery_complete();
}

std::string Fabric::why_no_device_memory() const {
    return backend_->why_no_device_memory();
}

std::string FabricBackend::why_no_device_memory() const {
    return text("fabric provider '", provider(), "' registers host memory alone");
}

std::unique_ptr<MemoryRegionBackend> FabricBackend::register_device_memory(ByteSpan, MemoryAccess,
                                                                           const MemoryDevice&) {
    throw FabricError(why_no_device_memory());
}

namespace {

void check_kind(ByteSpan memory, const MemoryPlace& place) {
    if (place.device == nullptr) {
        if (place.kind == MemoryKind::kHost) return;
        throw InvalidArgument(text(name_of(place.kind), " memory was to be registered without its device"));
    }
    const MemoryKind found = place.device->kind_of(memory.data());
    if (found != place.kind)
        throw InvalidArgument(text("memory was to be registered as ", name_of(place.kind), " memory, and is ",
                                   name_of(found), " memory; say what it is"));
}

}  // namespace

MemoryRegion::MemoryRegion(const Fabric& fabric, ByteSpan memory, MemoryAccess access, const MemoryPlace& place)
    : fabric_(fabric.backend()), memory_(memory) {
    if (memory.empty())
        throw InvalidArgument("a memory region of 0 bytes cannot be registered; pass at least one byte");
    check_kind(memory, place);
    region_ = place.kind == MemoryKind::kCuda ? fabric_->register_device_memory(memory, access, *place.device)
                                              : fabric_->register_memory(memory, access);
}

MemoryRegion::MemoryRegion(MemoryRegion&&) noexcept = default;
MemoryRegion::~MemoryRegion() = default;

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
    region_ = std::move(other.region_);  // before the fabric that it was registered with
    fabric_ = std::move(other.fabric_);
    memory_ = other.memory_;
    return *this;
}

ByteSpan MemoryRegion::memory() const noexcept {
    return memory_;
}
void* MemoryRegion::descriptor() const noexcept {
    return region_->descriptor();
}
RemoteRegion MemoryRegion::remote() const noexcept {
    return region_->remote();
}

Endpoint::Endpoint(const Fabric& fabric, EndpointHandler& handler, const EndpointOptions& options)
    : fabric_(fabric.backend()), endpoint_(fabric_->open_endpoint(handler, options)) {}

Endpoint::~Endpoint() = default;

std::vector<std::byte> Endpoint::address() const {
    return endpoint_->address();
}
PeerId Endpoint::add_peer(ConstByteSpan address) {
    return endpoint_->add_peer(address);
}
void Endpoint::remove_peer(PeerId peer) noexcept {
    endpoint_->remove_peer(peer);
}
void Endpoint::wake() noexcept {
    endpoint_->wake();
}

}  // namespace lynx
