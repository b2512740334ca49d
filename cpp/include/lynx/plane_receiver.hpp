// The receiving half of a transfer: a slot in the registered arena, the count of what has arrived in it, and the
// decoding of complete parts. Nothing of a part is shown before all of its chunks are in.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "lynx/codec.hpp"
#include "lynx/deadline.hpp"
#include "lynx/device.hpp"
#include "lynx/export.hpp"
#include "lynx/manifest.hpp"
#include "lynx/metrics.hpp"
#include "lynx/node.hpp"

namespace lynx {

class ArenaBlock;
class ShardPlan;

struct ReceiverOptions {
    /// Asks the sender for at most so many payload bytes per second; 0 for no limit.
    std::uint64_t bytes_per_second = 0;
    const Codec* codec = nullptr;  ///< Codec::best() if null
    /// For a request in shards: what this plan does not foresee for receiving rank `shard` is refused. Outlives the
    /// call.
    const ShardPlan* plan = nullptr;
    std::uint32_t shard = 0;
};

/// What is complete and checked, at one moment. `number` grows by one with each tensor's part that becomes complete.
struct Revision {
    std::uint64_t number = 0;
    std::array<std::uint32_t, kMaxParts> tensors_ready{};
    std::array<std::uint64_t, kMaxParts> arrived_bytes{};
    std::array<std::uint64_t, kMaxParts> part_bytes{};

    friend bool operator==(const Revision&, const Revision&) = default;
};

/// Every member may be called from any thread.
class LYNX_API PlaneReceiver {
   public:
    /// Takes a slot. Throws ArenaFull, InvalidArgument, ProtocolError (ReceiverOptions::plan), Unsupported (checksums
    /// or exact tiers on DevicePath::kDirect).
    PlaneReceiver(const Node& node, Manifest manifest, const ReceiverOptions& options = {});
    PlaneReceiver(PlaneReceiver&&) noexcept;
    PlaneReceiver& operator=(PlaneReceiver&&) noexcept;
    /// Gives the slot back if every chunk has arrived, without the sender having given up a write at a deadline, or the
    /// sender is known to have stopped (settle()). Otherwise the slot stays taken as long as the node lives: a late
    /// write must not hit another request's memory.
    ~PlaneReceiver();

    [[nodiscard]] const Manifest& manifest() const noexcept;
    /// What the sender needs; carried by lynx::Peer or by the embedder.
    [[nodiscard]] Grant grant() const;

    [[nodiscard]] Revision revision() const;
    /// Is this part of this layer complete, and every part before it, for K and V alike? A part that is not sent never
    /// is.
    [[nodiscard]] bool ready(std::uint32_t layer, unsigned part) const;
    /// The same for all layers.
    [[nodiscard]] bool ready(unsigned part) const;
    /// Has every chunk of every part arrived?
    [[nodiscard]] bool complete() const;
    /// The finest part that is complete for all layers, with every part before it; nothing before the anchor is. What a
    /// transfer that has failed leaves behind.
    [[nodiscard]] std::optional<unsigned> tier() const;
    /// When the parts of the tensors came, of those of which anything has.
    [[nodiscard]] std::vector<PartTimes> timeline() const;
    /// Waits for ready(...). False at the deadline. Throws what ended the transfer, InvalidArgument for a part that the
    /// manifest does not send.
    [[nodiscard]] bool wait(std::uint32_t layer, unsigned part, Deadline deadline) const;
    [[nodiscard]] bool wait(unsigned part, Deadline deadline) const;
    /// Waits for a revision newer than `after`; the current one, whether newer or the deadline passed.
    [[nodiscard]] Revision wait_newer(std::uint64_t after, Deadline deadline) const;

    /// The token that prefill sampled: at once if the manifest has it, else once it has come. Nothing at the deadline.
    /// Throws what ended the transfer.
    [[nodiscard]] std::optional<std::int32_t> first_token(Deadline deadline) const;
    /// Tells it, once, where the manifest has none; lynx::Peer does. Throws ProtocolError for a negative token and for
    /// a second one.
    void set_first_token(std::int32_t token);

    /// Decodes K or V of a layer, of all of its pieces in the manifest, from all planes through `part` (bit for bit
    /// from Manifest::exact_part) into `destination` (any dtype and strides), whose first element is that of the first
    /// piece. Throws InvalidArgument if that part is not complete or the shape is not the manifest's, CorruptData as
    /// Codec::decode_exact does.
    void decode(std::uint32_t layer, TensorRole role, unsigned part, const MutableTensorView& destination) const;
    /// The same into a tensor in the memory of the node's device. Returns once the work is queued there, after at most
    /// two other tensors of the node. What is put on the caller's stream from now on finds the values; whether they are
    /// right (CorruptData, CudaError), wait_decoded() says. A CudaError ends the transfer.
    void decode(std::uint32_t layer, TensorRole role, unsigned part, const MutableTensorView& destination,
                OnDevice order) const;
    /// Waits for the end of all decoding on the device so far. False at the deadline. Throws the first thing that went
    /// wrong with it since the last call.
    [[nodiscard]] bool wait_decoded(Deadline deadline) const;

    /// Ends the transfer: waiting calls throw `error`. What is complete stays readable. The first error stays.
    void fail(const std::exception_ptr& error) noexcept;
    /// The sender has stopped after posting so many chunks: ends the slot's keys, after which it may be given back.
    /// Where a provider cannot tell when writes have landed, waits first until they are all in, or nothing more has
    /// come for a quarter of a second. False at the deadline.
    [[nodiscard]] bool settle(std::uint64_t chunks_posted, Deadline deadline) noexcept;

    struct State;  // cpp/src/stream/receive_state.hpp
    [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

   private:
    friend class Peer;
    /// In room that has been taken before.
    PlaneReceiver(const Node& node, Manifest manifest, const ReceiverOptions& options, ArenaBlock room);
    std::shared_ptr<Node::Impl> node_;
    std::shared_ptr<State> state_;
};

}  // namespace lynx
