// What all endpoints of a FaultyFabric share: who is there, and which memory may be written. Behind one lock, so that
// nothing lands in a region once its owner has let it go.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "faulty/faulty_fabric.hpp"

namespace lynx::faulty {

/// Where arrivals for an endpoint are left for its thread.
class Inbox {
   public:
    virtual ~Inbox() = default;
    virtual void leave(std::uint32_t tag) = 0;
};

class FaultyFabric::Network {
   public:
    explicit Network(const FaultOptions& options) : options_(options) {}

    [[nodiscard]] const FaultOptions& options() const noexcept { return options_; }

    [[nodiscard]] std::uint64_t add_region(ByteSpan memory, MemoryAccess access);
    void remove_region(std::uint64_t number) noexcept;
    [[nodiscard]] std::uint64_t add_endpoint(Inbox& inbox);
    void remove_endpoint(std::uint64_t number) noexcept;

    /// Whether `source` lies in the living region with this number.
    [[nodiscard]] bool is_registered(ConstByteSpan source, std::uint64_t region) const;

    struct Decision {
        WriteId id;
        Fault fault = Fault::kNone;
    };
    /// The next try of this write, or in words why it cannot land.
    [[nodiscard]] Decision decide_on(const Write& write, std::uint64_t stream, std::string& invalid);

    /// The bytes to the region, then the tag to the endpoint. `flip`: the number of the bit to land wrong. Returns in
    /// words why it could not.
    [[nodiscard]] std::string land(ConstByteSpan bytes, const Write& write, std::uint64_t endpoint,
                                   std::optional<std::uint64_t> flip);

    void stall(std::uint64_t stream);
    void heal(std::uint64_t stream);
    [[nodiscard]] std::size_t half_in() const;
    /// Takes the write if the stream is stalled.
    [[nodiscard]] bool stalls(const Write& write, std::uint64_t stream, std::uint64_t endpoint);

    [[nodiscard]] FaultCounts counts() const;
    [[nodiscard]] std::vector<FaultEvent> trace() const;
    [[nodiscard]] std::size_t regions() const;
    [[nodiscard]] std::size_t endpoints() const;

   private:
    struct Region {
        ByteSpan memory;
        MemoryAccess access = MemoryAccess::kLocal;
        std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>, std::uint32_t> tries{};
    };
    /// The region that the write may go to, or nullptr with the reason.
    [[nodiscard]] Region* target(const Write& write, std::string& invalid);

    /// A write that was begun and goes on later.
    struct HalfIn {
        std::uint64_t stream = 0;
        std::uint64_t endpoint = 0;  ///< whose memory it is: nothing lands there once that has closed
        ByteSpan to;
        std::vector<std::byte> bytes;
    };

    const FaultOptions options_;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, Region> regions_;  // by number, which is the key too
    std::map<std::uint64_t, Inbox*> endpoints_;
    std::uint64_t last_number_ = 0;
    FaultCounts counts_;
    std::vector<FaultEvent> events_;
    std::set<std::uint64_t> stalled_;
    std::vector<HalfIn> half_in_;
};

}  // namespace lynx::faulty
