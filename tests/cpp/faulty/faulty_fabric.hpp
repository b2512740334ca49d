// A fabric within the process whose writes go wrong by a seeded script: a double for libfabric in tests.
//
//     faulty::FaultyFabric fabric(faulty::FaultOptions::each(0.01, seed));
//     Node sender({.fabric = {.backend = fabric.node(1)}});
//     Node receiver({.fabric = {.backend = fabric.node(2)}});
//
// All endpoints of one FaultyFabric reach each other. A write is a memcpy between registered regions, checked by key
// and bounds as a provider does; each endpoint has a thread that calls its handler as the real one does.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "faulty/faults.hpp"
#include "lynx/fabric.hpp"

namespace lynx::faulty {

/// What a FaultyFabric has done so far.
struct FaultCounts {
    std::uint64_t writes = 0;    ///< that got as far as a decision; refused ones each time
    std::uint64_t landed = 0;    ///< doubles included
    std::uint64_t rejected = 0;  ///< for a key or bounds that are not valid (any more), a late double's included
    std::array<std::uint64_t, kFaults> faults{};

    [[nodiscard]] std::uint64_t of(Fault fault) const { return faults.at(static_cast<std::size_t>(fault)); }
};

/// Its functions may be called from any thread. It may be destroyed before what was made of it.
class FaultyFabric {
   public:
    explicit FaultyFabric(const FaultOptions& options = {});

    /// What a Fabric is made of, for one process's part: `stream` is its endpoints' number in every decision.
    [[nodiscard]] std::shared_ptr<FabricBackend> node(std::uint64_t stream) const;

    /// From now on the writes of that stream's endpoints stop half-way, and are told as given up by a deadline. What is
    /// half in goes on landing at heal(), whatever has become of the region: as over a TCP connection that stalls.
    void stall(std::uint64_t stream);
    void heal(std::uint64_t stream);
    /// How many writes are half in.
    [[nodiscard]] std::size_t half_in() const;

    [[nodiscard]] FaultCounts counts() const;
    /// Every fault there was, sorted. The same writes with the same seed give the same trace, in whatever order and
    /// from whatever threads they came. (But a handler that looks at the time makes other writes each time.)
    [[nodiscard]] std::vector<FaultEvent> trace() const;
    /// Registered regions and open endpoints, to see that none is left.
    [[nodiscard]] std::size_t open_regions() const;
    [[nodiscard]] std::size_t open_endpoints() const;

    class Network;  // faulty_fabric.cpp

   private:
    std::shared_ptr<Network> network_;
};

}  // namespace lynx::faulty
