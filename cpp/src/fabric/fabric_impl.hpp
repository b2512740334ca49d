// What a Fabric holds: the chosen provider's fabric and domain, and what it granted.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/handle.hpp"
#include "lynx/fabric.hpp"

namespace lynx {

struct Fabric::Impl {
    explicit Impl(const FabricOptions& options);

    /// Remote addresses are virtual addresses; otherwise offsets into the region.
    [[nodiscard]] bool virtual_addresses() const noexcept;
    /// The provider chooses keys; otherwise we do.
    [[nodiscard]] bool provider_keys() const noexcept;
    /// A description for one more endpoint: shm endpoints each have a name of their own.
    [[nodiscard]] fabric::InfoHandle endpoint_info() const;

    fabric::InfoHandle info;
    std::string name;
    fabric::Handle<fid_fabric> root;
    fabric::Handle<fid_domain> domain;
};

}  // namespace lynx
