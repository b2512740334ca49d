// libfabric as the fabric's backend: the chosen provider's fabric and domain, and what it granted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fabric/handle.hpp"
#include "lynx/fabric.hpp"

namespace lynx::fabric {

class Libfabric final : public FabricBackend, public std::enable_shared_from_this<Libfabric> {
   public:
    explicit Libfabric(const FabricOptions& options);

    [[nodiscard]] const std::string& provider() const noexcept override { return name; }
    [[nodiscard]] bool delivery_complete() const noexcept override;
    [[nodiscard]] std::unique_ptr<MemoryRegionBackend> register_memory(ByteSpan memory, MemoryAccess access) override;
    [[nodiscard]] std::string why_no_device_memory() const override;
    [[nodiscard]] std::unique_ptr<MemoryRegionBackend> register_device_memory(ByteSpan memory, MemoryAccess access,
                                                                              const MemoryDevice& device) override;
    [[nodiscard]] std::unique_ptr<EndpointBackend> open_endpoint(EndpointHandler& handler,
                                                                 const EndpointOptions& options) override;

    /// Remote addresses are virtual addresses; otherwise offsets into the region.
    [[nodiscard]] bool virtual_addresses() const noexcept;
    /// The provider chooses keys; otherwise we do.
    [[nodiscard]] bool provider_keys() const noexcept;
    /// A description for one more endpoint: shm endpoints each have a name of their own.
    [[nodiscard]] InfoHandle endpoint_info() const;

   private:
    /// CUDA memory of that device; without one, host memory.
    [[nodiscard]] std::unique_ptr<MemoryRegionBackend> register_kind(ByteSpan memory, MemoryAccess access,
                                                                     const MemoryDevice* device);

   public:
    // In opening order.
    InfoHandle info;
    std::string name;
    Handle<fid_fabric> root;
    Handle<fid_domain> domain;
};

}  // namespace lynx::fabric
