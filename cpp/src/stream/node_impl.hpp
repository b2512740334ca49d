// The parts of a node, in opening order, and the place where the endpoint's thread meets the transfers.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lynx/node.hpp"
#include "lynx/plane_receiver.hpp"
#include "stream/arena.hpp"
#include "stream/arena_memory.hpp"
#include "stream/device_lanes.hpp"
#include "stream/metrics.hpp"

namespace lynx {

class SendQueue;

/// Slot numbers to the receivers behind them.
class SlotTable {
   public:
    static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

    /// A free slot number. Throws ArenaFull if all are taken.
    [[nodiscard]] std::uint32_t add(const std::shared_ptr<PlaneReceiver::State>& state);
    void remove(std::uint32_t slot) noexcept;
    void fail_all(const std::exception_ptr& error) const noexcept;
    [[nodiscard]] std::shared_ptr<PlaneReceiver::State> find(std::uint32_t slot) const noexcept;
    [[nodiscard]] std::uint64_t taken() const noexcept { return static_cast<std::uint64_t>(taken_.value()); }

   private:
    mutable std::mutex mutex_;
    std::unordered_map<std::uint32_t, std::weak_ptr<PlaneReceiver::State>> slots_;
    std::uint32_t next_ = 0;
    Gauge taken_;  // read without the mutex
};

/// One way into the fabric: an endpoint with its thread, and the arena as its provider knows it.
struct Rail final : EndpointHandler {
    Rail(Node::Impl& node, std::size_t index, const FabricOptions& fabric, const EndpointOptions& endpoint);

    void on_arrival(std::uint32_t tag) noexcept override;
    [[nodiscard]] const Write* next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept override;
    void on_posted() noexcept override;
    [[nodiscard]] bool on_refused() noexcept override;
    void on_written(std::uint64_t cookie) noexcept override;
    void on_write_failed(std::uint64_t cookie, std::exception_ptr error) noexcept override;
    void on_broken(const std::exception_ptr& error) noexcept override;

    Node::Impl& node;
    const std::size_t index;
    Fabric fabric;
    MemoryRegion region;  // of the whole arena, to send from; what is written to has regions of its own
    Endpoint endpoint;    // last: its thread calls into all of the above
};

struct Node::Impl {
    explicit Impl(const NodeOptions& options);
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    /// Something new may be there to send.
    void wake() noexcept;
    [[nodiscard]] std::vector<std::byte> address() const;
    [[nodiscard]] PeerId add_peer(ConstByteSpan address);
    void remove_peer(PeerId peer) noexcept;

    MetricCounters metrics;
    ArenaMemory memory;
    Arena arena;
    SlotTable slots;
    std::unique_ptr<SendQueue> queue;
    const std::uint64_t window_bytes;  // 0: measured
    std::atomic<PeerId> last_peer = 0;
    std::vector<std::unique_ptr<Rail>> rails;  // their threads call into all of the above
    // Last: what is on them may end a transfer's state, and wake the rails. Only with a device.
    std::optional<DeviceLanes> encoding;
    std::optional<DeviceLanes> decoding;
};

}  // namespace lynx
