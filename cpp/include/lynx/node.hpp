// A process's end of the fabric: one provider, one endpoint with its thread, one registered arena. Senders and
// receivers are made on it and keep its parts alive; a process usually has one Node.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lynx/export.hpp"
#include "lynx/fabric.hpp"

namespace lynx {

struct NodeOptions {
    FabricOptions fabric;
    /// Host memory registered once, at start, in which every slot lies. Touched only where used.
    std::size_t arena_bytes = std::size_t{1} << 30;
    EndpointOptions endpoint;
};

class LYNX_API Node {
   public:
    /// Throws FabricError (no usable provider, registration refused), ArenaFull (no memory).
    explicit Node(const NodeOptions& options = {});

    [[nodiscard]] const std::string& provider() const noexcept;
    /// The address blob to hand to a peer, by lynx::Peer or by the embedder's own means.
    [[nodiscard]] std::vector<std::byte> address() const;
    /// Makes a peer's address blob known. Throws FabricError for a blob that this provider does not take.
    [[nodiscard]] PeerId add_peer(ConstByteSpan address);
    void remove_peer(PeerId peer) noexcept;

    [[nodiscard]] std::size_t arena_bytes() const noexcept;
    [[nodiscard]] std::size_t arena_free_bytes() const noexcept;

    struct Impl;  // cpp/src/stream/node_impl.hpp
    [[nodiscard]] const std::shared_ptr<Impl>& impl() const noexcept { return impl_; }

   private:
    std::shared_ptr<Impl> impl_;
};

}  // namespace lynx
