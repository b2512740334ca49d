// The sending half of a transfer: codes tensors straight into registered memory and streams their parts, anchors
// of all tensors first, then part by part, each in the manifest's order.
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

/// Which chunks go first, over all transfers of a node: strictly by class, but that each lower class keeps a small
/// share (NodeOptions::floor).
enum class SendClass : std::uint8_t { kAnchor = 0, kResidual = 1, kExact = 2 };
inline constexpr unsigned kSendClasses = 3;

/// A transfer's place among the others, which may change while it runs.
struct Priority {
    /// The class of each tier; within it a transfer's parts go in turn, and of a part the layers in the manifest's
    /// order.
    std::array<SendClass, kTiers> classes = {SendClass::kAnchor, SendClass::kResidual, SendClass::kExact};
    /// Within a class the earlier one goes first; it ends nothing when it passes.
    Clock::time_point deadline = Clock::time_point::max();
    /// Among transfers of one class and deadline bytes are shared in proportion; more than 0.
    double weight = 1;
};

struct SenderOptions {
    /// Payload bytes per second on the wire, a token bucket; 0 for no limit. The lower of this and the grant's holds.
    std::uint64_t bytes_per_second = 0;
    Priority priority{};
    const Codec* codec = nullptr;  ///< Codec::best() if null
};

struct SendProgress {
    /// Of the whole transfer; of the exact tier the most that it may be until all tensors are put.
    std::array<std::uint64_t, kMaxParts> part_bytes{};
    std::array<std::uint64_t, kMaxParts> written_bytes{};  ///< of each part, out of this node
    std::uint64_t resent_bytes = 0;                        ///< written once more: lost, damaged, or on a dead rail
    std::uint64_t nonfinite_vectors = 0;                   ///< see EncodeStats
};

/// put() is for one thread at a time; everything else may be called from any thread.
/// What goes next is decided over all transfers of the node: a residual may go while anchors are still to be put, and
/// stands back as soon as one is.
class LYNX_API PlaneSender {
   public:
    /// Takes room in the node's arena. `peer` is a known peer and `grant` its answer to `manifest`.
    /// Throws ArenaFull, ProtocolError (the grant does not fit the manifest), InvalidArgument, Unsupported (checksums
    /// or exact tiers on DevicePath::kDirect).
    PlaneSender(const Node& node, PeerId peer, Manifest manifest, const Grant& grant,
                const SenderOptions& options = {});
    PlaneSender(PlaneSender&&) noexcept;
    PlaneSender& operator=(PlaneSender&&) noexcept;
    /// Drops what is not yet posted. The memory returns to the arena when what was posted has been written.
    ~PlaneSender();

    /// Codes one tensor of the manifest, or that piece of it, and queues its parts. `source` is read before put()
    /// returns. Throws InvalidArgument (unknown or repeated piece, a shape that is not the manifest's), or whatever
    /// ended the transfer.
    void put(std::uint32_t layer, TensorRole role, const TensorView& source, std::uint32_t first_token = 0,
             std::uint32_t first_head = 0);
    /// The same of a tensor in the memory of the node's device. Returns once the work is queued there, after at most
    /// two other tensors of the node; the parts are queued for the wire when it has ended. What goes wrong by then ends
    /// the transfer, as does what the device refuses at once (CudaError). Not every node can (Node::device_path).
    void put(std::uint32_t layer, TensorRole role, const TensorView& source, OnDevice order,
             std::uint32_t first_token = 0, std::uint32_t first_head = 0);
    /// Takes effect with the next chunk. Throws InvalidArgument for a weight that is not above 0 and finite.
    void set_priority(const Priority& priority);
    /// Waits until every chunk has been written. False at the deadline. Throws what ended the transfer.
    [[nodiscard]] bool wait_written(Deadline deadline);
    [[nodiscard]] SendProgress progress() const;
    /// When the parts of the tensors left, of those of which anything has.
    [[nodiscard]] std::vector<PartTimes> timeline() const;
    [[nodiscard]] const Manifest& manifest() const noexcept;

    [[nodiscard]] bool failed() const noexcept;
    /// Ends the transfer: pending chunks are dropped, and waiting calls throw `error`. The first error stays.
    void fail(const std::exception_ptr& error) noexcept;
    /// After fail(): waits until nothing is with the provider any more; then the chunks that were ever posted, or 2^64
    /// - 1 if a write was given up at its deadline and may land yet.
    [[nodiscard]] std::optional<std::uint64_t> wait_drained(Deadline deadline);

    struct State;  // cpp/src/stream/send_state.hpp
    [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

   private:
    friend class Peer;
    /// In room that has been taken before.
    PlaneSender(const Node& node, PeerId peer, Manifest manifest, const Grant& grant, const SenderOptions& options,
                ArenaBlock room);
    std::shared_ptr<Node::Impl> node_;
    std::shared_ptr<State> state_;
};

}  // namespace lynx
