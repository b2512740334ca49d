// A process's end of the fabric: one provider, one endpoint with its thread, one registered arena. Senders and
// receivers are made on it and keep its parts alive; a process usually has one Node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lynx/device.hpp"
#include "lynx/export.hpp"
#include "lynx/fabric.hpp"
#include "lynx/manifest.hpp"
#include "lynx/metrics.hpp"

namespace lynx {

struct NodeOptions {
    FabricOptions fabric{};
    /// More ways to the same peers, each of an address of its own: transfers are striped over all rails, and what a
    /// rail that dies had to do goes over the others.
    std::vector<FabricOptions> more_rails{};
    /// Memory registered once, at start, in which every slot lies. Host memory is touched only where used.
    std::size_t arena_bytes = std::size_t{1} << 30;
    /// What that memory is. kPinned and kCuda take the `device`, whose tensors may then be sent and received. A kCuda
    /// arena that a provider does not register becomes a kPinned one: device_path() says so.
    MemoryKind memory = MemoryKind::kHost;
    std::shared_ptr<Device> device = nullptr;
    EndpointOptions endpoint{};
    /// Bytes on their way to one peer over one rail, at most; 0: a little more than the measured bandwidth-delay
    /// product and two chunks, so that a new anchor finds little before it in sockets and cards.
    std::uint64_t window_bytes = 0;
    /// The share of bytes that each lower class keeps while higher ones have something to send.
    double floor = 0.04;
};

/// How the tensors of the node's device travel.
enum class DevicePath : std::uint8_t {
    kNone,    ///< not at all: the arena is host memory
    kStaged,  ///< through pinned host memory; copies overlap with kernels
    kDirect,  ///< the provider reads and writes the device's memory
};

class LYNX_API Node {
   public:
    /// Throws FabricError (no usable provider, registration refused), ArenaFull (no memory), InvalidArgument.
    explicit Node(const NodeOptions& options = {});

    [[nodiscard]] const std::string& provider() const noexcept;
    [[nodiscard]] std::size_t rails() const noexcept;
    /// The address blob to hand to a peer, by lynx::Peer or by the embedder's own means; of all rails.
    [[nodiscard]] std::vector<std::byte> address() const;
    /// Makes a peer's address blob known. Throws FabricError for a blob that this provider does not take.
    [[nodiscard]] PeerId add_peer(ConstByteSpan address);
    void remove_peer(PeerId peer) noexcept;
    /// Rails over which this peer is written to at present: fewer than there are once one has died.
    [[nodiscard]] std::size_t live_rails(PeerId peer) const noexcept;
    /// The chunk size that suits the bandwidth measured to this peer: about 1 ms of it, 64 KiB to 1 MiB;
    /// kDefaultChunkBytes as long as none is known.
    [[nodiscard]] std::uint32_t chunk_bytes_for(PeerId peer) const noexcept;

    /// Found out at start by a registration, never guessed.
    [[nodiscard]] DevicePath device_path() const noexcept;
    /// In words; empty if it is.
    [[nodiscard]] const std::string& why_not_direct() const noexcept;

    /// What was counted since the node was made. From any thread, at any time: holds up no transfer.
    [[nodiscard]] NodeMetrics metrics() const noexcept;

    [[nodiscard]] std::size_t arena_bytes() const noexcept;
    [[nodiscard]] std::size_t arena_free_bytes() const noexcept;

    struct Impl;  // cpp/src/stream/node_impl.hpp
    [[nodiscard]] const std::shared_ptr<Impl>& impl() const noexcept { return impl_; }

   private:
    std::shared_ptr<Impl> impl_;
};

}  // namespace lynx
