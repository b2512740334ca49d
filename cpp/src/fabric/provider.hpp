// Which provider: what libfabric offers, what Lynx needs of it, and why one was refused.
#pragma once

#include <string>
#include <vector>

#include "fabric/handle.hpp"
#include "lynx/fabric.hpp"

namespace lynx::fabric {

/// The API version that Lynx is written against, or the library's own if that is older.
[[nodiscard]] std::uint32_t api_version() noexcept;

/// True for providers that take no host address: shm has names, efa takes the device's own address.
[[nodiscard]] bool ignores_host(const std::string& provider) noexcept;

/// What is asked of every provider; offered mode bits are a superset of what any one of them may require.
[[nodiscard]] InfoHandle make_hints(const std::string& provider);

/// One provider after a real try: its description, or in words why not.
struct Candidate {
    InfoHandle info;     ///< set if it is usable
    std::string reason;  ///< set if not
};
/// With `device_memory` FI_HMEM is asked for first; who does not grant it is taken without.
[[nodiscard]] Candidate try_provider(const std::string& provider, const std::string& host, bool device_memory = false);

/// The description of the provider that the options ask for. Throws FabricError, as Fabric's constructor
/// documents.
[[nodiscard]] InfoHandle choose_provider(const FabricOptions& options);

}  // namespace lynx::fabric
