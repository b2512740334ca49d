// A cache that several ranks own together, by layers (pipeline parallel) and heads (tensor parallel): which sending
// rank brings which pieces to which receiving rank, and the receiving rank's pieces put together again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lynx/export.hpp"
#include "lynx/manifest.hpp"
#include "lynx/peer.hpp"
#include "lynx/plane_receiver.hpp"
#include "lynx/plane_sender.hpp"

namespace lynx {

/// What K and V of one whole layer are.
struct LayerShape {
    std::uint32_t heads = 0;
    std::uint32_t head_dim = 0;
    DType dtype = DType::kBF16;  ///< of the source
    bool value = true;           ///< false where a layer has one tensor alone, as with MLA: its K

    friend bool operator==(const LayerShape&, const LayerShape&) = default;
};

/// What each rank on one side owns of a cache. All of it is owned. Of a layer a rank owns one run of heads or nothing,
/// and two ranks the very same run (it is replicated) or nothing in common.
struct LYNX_API ShardLayout {
    std::vector<LayerShape> layers;
    std::vector<std::vector<Shard>> ranks;  ///< by rank; of each in layer order

    /// The usual one: `pipeline` stages, the first ones a layer longer if they do not come out even, and in each
    /// `tensor` ranks, that is rank stage * tensor + i. Heads are dealt likewise; where a layer has fewer than
    /// `tensor`, each is owned by as many consecutive ranks. Throws InvalidArgument where that does not come out even.
    [[nodiscard]] static ShardLayout even(std::vector<LayerShape> layers, std::uint32_t tensor,
                                          std::uint32_t pipeline = 1);

    /// Throws InvalidArgument that names the layer, the heads and the ranks that do not fit.
    void validate() const;
    /// For the other side, which has to know it, carried by Peer::send_message or by the embedder.
    [[nodiscard]] std::vector<std::byte> serialize() const;
    /// Reads bytes from a stranger: throws ProtocolError for what is malformed or not valid.
    [[nodiscard]] static ShardLayout parse(ConstByteSpan bytes);

    friend bool operator==(const ShardLayout&, const ShardLayout&) = default;
};

/// A run of heads of one layer.
struct ShardPiece {
    std::uint32_t layer = 0;
    std::uint32_t first_head = 0;
    std::uint32_t heads = 0;

    friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

/// Who sends what to whom: the same at both ends, since it follows from the two layouts alone. Where n senders own the
/// same heads of layer l, the receiver that is the k-th of those who want some of them gets these from sender
/// (l + k) mod n of the n, so that all of them have something to send.
class LYNX_API ShardPlan {
   public:
    /// Throws InvalidArgument, in words: a layout that is not valid, or two that are of different caches.
    ShardPlan(ShardLayout senders, ShardLayout receivers);

    [[nodiscard]] const ShardLayout& senders() const noexcept { return senders_; }
    [[nodiscard]] const ShardLayout& receivers() const noexcept { return receivers_; }
    /// In layer order, one for each layer at most; K and V alike. Empty if these two have nothing to do with each
    /// other.
    [[nodiscard]] std::span<const ShardPiece> pieces(std::uint32_t sender, std::uint32_t receiver) const;
    /// Whom a receiving rank gets something from, and a sending rank has something for.
    [[nodiscard]] std::vector<std::uint32_t> senders_to(std::uint32_t receiver) const;
    [[nodiscard]] std::vector<std::uint32_t> receivers_from(std::uint32_t sender) const;

    /// What `sender` offers `receiver`, cut from the manifest of the whole cache: its tensors have all heads, and
    /// those that are not among the pieces are left out. Throws InvalidArgument if there are none, or `whole` is not
    /// of this cache.
    [[nodiscard]] Manifest manifest(const Manifest& whole, std::uint32_t sender, std::uint32_t receiver) const;
    /// Is that what has to come to `receiver`? ReceiverOptions::plan asks it before a slot is taken. Throws
    /// ProtocolError that names what this plan does not foresee, or misses.
    void check(const Manifest& manifest, std::uint32_t receiver) const;

   private:
    ShardLayout senders_;
    ShardLayout receivers_;
    std::vector<std::vector<ShardPiece>> pieces_;  // sender * receivers + receiver
};

/// Puts what `sender` carries of a layer's K or V: `source` is the tensor of the sending rank's own heads. Nothing if
/// it carries none of it. For each receiver of a rank there is a PlaneSender of its own. Throws as PlaneSender::put.
LYNX_API void put_shard(PlaneSender& sender, std::uint32_t layer, TensorRole role, const TensorView& source,
                        std::uint32_t first_token = 0);

/// One transfer of a request in several. Both outlive the ShardedReceiver.
struct ShardSource {
    PlaneReceiver* receiver = nullptr;
    Peer* peer = nullptr;  ///< none where the embedder carries cancels
};

/// All transfers that make up one receiving rank's part of a request, as if they were one: the same calls as
/// PlaneReceiver. It fails as a whole, with the first error of any; the call that meets it cancels the other transfers
/// before it throws, which takes 2 s at most. Every member may be called from any thread.
class LYNX_API ShardedReceiver {
   public:
    /// Throws ProtocolError if these are not the transfers that `plan` foresees for `receiver`, or not of one request.
    ShardedReceiver(const ShardPlan& plan, std::uint32_t receiver, std::vector<ShardSource> sources);
    ShardedReceiver(ShardedReceiver&&) noexcept;
    ShardedReceiver& operator=(ShardedReceiver&&) noexcept;
    ~ShardedReceiver();

    /// Of the rank's whole shard: one tensor for each layer and role. Layers and heads are counted over the whole
    /// cache.
    [[nodiscard]] const Manifest& manifest() const noexcept;

    /// Sums over all transfers.
    [[nodiscard]] Revision revision() const;
    [[nodiscard]] bool ready(std::uint32_t layer, unsigned part) const;
    [[nodiscard]] bool ready(unsigned part) const;
    [[nodiscard]] bool complete() const;
    [[nodiscard]] std::optional<unsigned> tier() const;
    [[nodiscard]] bool wait(std::uint32_t layer, unsigned part, Deadline deadline) const;
    [[nodiscard]] bool wait(unsigned part, Deadline deadline) const;
    [[nodiscard]] Revision wait_newer(std::uint64_t after, Deadline deadline) const;

    /// Whichever sender knows it first.
    [[nodiscard]] std::optional<std::int32_t> first_token(Deadline deadline) const;

    /// `destination` is of all heads of the rank's shard.
    void decode(std::uint32_t layer, TensorRole role, unsigned part, const MutableTensorView& destination) const;

    /// Confirms every transfer that has a peer, as Peer::finish does.
    void finish();
    /// Cancels every transfer that has a peer and fails the others. True once no late write can land in any slot.
    bool cancel(const std::string& reason, Deadline deadline) noexcept;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lynx
