#include "faulty/faulty_fabric.hpp"

#include <utility>

#include "faulty/faulty_endpoint.hpp"
#include "faulty/network.hpp"

namespace lynx::faulty {
namespace {

class FaultyRegion final : public MemoryRegionBackend {
   public:
    FaultyRegion(std::shared_ptr<FaultyFabric::Network> network, ByteSpan memory, MemoryAccess access)
        : network_(std::move(network)), number_(network_->add_region(memory, access)) {
        if (access == MemoryAccess::kRemoteWrite) remote_ = {0, number_, memory.size()};
    }
    FaultyRegion(const FaultyRegion&) = delete;
    FaultyRegion& operator=(const FaultyRegion&) = delete;
    ~FaultyRegion() override { network_->remove_region(number_); }

    /// Not a pointer to anything: the region's number.
    [[nodiscard]] void* descriptor() const noexcept override { return reinterpret_cast<void*>(number_); }
    [[nodiscard]] RemoteRegion remote() const noexcept override { return remote_; }

   private:
    std::shared_ptr<FaultyFabric::Network> network_;
    std::uint64_t number_;
    RemoteRegion remote_;
};

class FaultyNode final : public FabricBackend {
   public:
    FaultyNode(std::shared_ptr<FaultyFabric::Network> network, std::uint64_t stream)
        : network_(std::move(network)), stream_(stream) {}

    [[nodiscard]] const std::string& provider() const noexcept override { return name_; }
    /// It says so, and lies about those that it drops.
    [[nodiscard]] bool delivery_complete() const noexcept override { return true; }
    [[nodiscard]] std::unique_ptr<MemoryRegionBackend> register_memory(ByteSpan memory, MemoryAccess access) override {
        return std::make_unique<FaultyRegion>(network_, memory, access);
    }
    [[nodiscard]] std::unique_ptr<EndpointBackend> open_endpoint(EndpointHandler& handler,
                                                                 const EndpointOptions& options) override {
        return std::make_unique<FaultyEndpoint>(network_, stream_, handler, options);
    }

   private:
    const std::string name_ = "faulty";
    std::shared_ptr<FaultyFabric::Network> network_;
    std::uint64_t stream_;
};

}  // namespace

FaultyFabric::FaultyFabric(const FaultOptions& options) : network_(std::make_shared<Network>(options)) {}

std::shared_ptr<FabricBackend> FaultyFabric::node(std::uint64_t stream) const {
    return std::make_shared<FaultyNode>(network_, stream);
}
void FaultyFabric::stall(std::uint64_t stream) {
    network_->stall(stream);
}
void FaultyFabric::heal(std::uint64_t stream) {
    network_->heal(stream);
}
std::size_t FaultyFabric::half_in() const {
    return network_->half_in();
}
FaultCounts FaultyFabric::counts() const {
    return network_->counts();
}
std::vector<FaultEvent> FaultyFabric::trace() const {
    return network_->trace();
}
std::size_t FaultyFabric::open_regions() const {
    return network_->regions();
}
std::size_t FaultyFabric::open_endpoints() const {
    return network_->endpoints();
}

}  // namespace lynx::faulty
