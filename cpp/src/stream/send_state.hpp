// What a PlaneSender and the rails' threads share about one outgoing transfer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "lynx/plane_sender.hpp"
#include "lynx/slot_layout.hpp"
#include "stream/chunk_run.hpp"
#include "stream/node_impl.hpp"
#include "stream/timeline.hpp"
#include "stream/token_bucket.hpp"

namespace lynx {

/// A chunk that wants to go, and what decides when.
struct SendCandidate {
    unsigned send_class = 0;
    Clock::time_point deadline;
    std::uint32_t layer = 0;
    double served = 0;  ///< bytes so far over weight
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;
};

struct PlaneSender::State {
    State(Node::Impl& node, PeerId peer, Manifest manifest, const Grant& grant, const SenderOptions& options,
          ArenaBlock room = {});
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // For the queue, on a rail's thread.
    /// The chunk of each class that may go now; `retry_at` is lowered if only the rate holds it back. A transfer that
    /// had nothing to send, as at its start, goes on with what the others have had.
    void candidates(Clock::time_point now, double others_served, Clock::time_point& retry_at,
                    std::array<std::optional<SendCandidate>, kSendClasses>& best);
    /// Takes that chunk out of the pending ones. False if it is not there any more.
    [[nodiscard]] bool take(std::uint32_t chunk);
    void on_posted(std::uint32_t chunk, Clock::time_point now);
    /// Failed, or stopped: nothing more is to be posted.
    [[nodiscard]] bool has_ended();
    /// A chunk that was taken: it was never posted, or another rail has to carry it.
    void put_back(std::uint32_t chunk, bool was_posted);
    void on_written(std::uint32_t chunk, Clock::time_point now);
    void on_failed(std::uint32_t chunk, const std::exception_ptr& error);
    [[nodiscard]] Write write_of(std::uint32_t chunk, std::size_t rail, PeerId rail_peer, std::uint64_t cookie);

    /// The tensor that is to be put, and the transfer's seed. Throws InvalidArgument, or what ended the transfer.
    struct Claim {
        std::uint32_t tensor;
        std::uint64_t seed;
    };
    [[nodiscard]] Claim claim(std::uint32_t layer, TensorRole role, std::uint32_t at_token, std::uint32_t at_head);
    /// A tensor is coded in memory that the host can read: writes its head, and queues it.
    void finish_put(const Claim& claim, std::uint64_t exact_bytes, std::uint64_t nonfinite_vectors);
    /// A tensor is coded: its chunks may go.
    void on_put(std::uint32_t tensor, std::uint64_t exact_bytes, std::uint64_t nonfinite_vectors);
    /// What the receiver is about to be told. Throws InvalidArgument for a negative one and for a second one, or what
    /// ended the transfer.
    void set_first_token(std::int32_t token);
    [[nodiscard]] ByteSpan memory() const noexcept {
        return node.memory.span().subspan(block.offset(), layout.bytes());
    }
    /// The mutex is held.
    [[nodiscard]] bool all_written() const;

    /// A write of it that was posted has been given up, and may land yet.
    void abandon();
    /// How many chunks were posted, once none is with a provider any more; kUnknownChunks if some may land yet.
    [[nodiscard]] std::optional<std::uint64_t> wait_drained(Deadline deadline);
    /// How many were posted, of a transfer that the receiver has whole; kUnknownChunks as above.
    [[nodiscard]] std::uint64_t posted_in_all();
    /// Posts nothing more, and tells nobody yet: fail() does.
    void stop() noexcept;
    void fail(const std::exception_ptr& error) noexcept;

    [[nodiscard]] std::vector<PartTimes> timeline();

    // For whoever carries messages to the receiver (see stream/peer_messages.hpp).
    /// The receiver has it all, whatever becomes of the peer now.
    void on_confirmed() noexcept;
    /// What has been written, if that is news for the receiver.
    [[nodiscard]] std::optional<Written> take_sent();
    /// The receiver misses these chunks, in order. False if it cannot: a number out of range or given twice.
    [[nodiscard]] bool resend(const Missing& missing);
    /// With true, the loss of the peer does not end the transfer: it is suspended until resume().
    void set_resumable(bool resumable);
    void suspend();
    /// Suspended, and nothing is with the provider any more.
    [[nodiscard]] bool may_resume();
    [[nodiscard]] std::uint64_t written_bytes();
    /// Have writes failed since this was last asked?
    [[nodiscard]] bool take_failed();
    /// Goes on under a new grant. `arrived` has one byte a chunk: 1 if it need not be sent again. Throws ProtocolError
    /// if they do not fit.
    void resume(const Grant& grant, std::span<const std::uint8_t> arrived);

    // Not an owner: a state lives in its PlaneSender, which holds the node, or in the node's own queue. An owning
    // pointer would be a cycle, and could end the node on its own thread.
    Node::Impl& node;
    const PeerId peer;
    const Manifest manifest;
    SlotLayout layout;  // its exact parts are trimmed as tensors are put, else it stays as it is
    const Codec& codec;
    const ArenaBlock block;

    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex:
    Grant grant;
    Priority priority;
    TokenBucket bucket;
    enum class Chunk : std::uint8_t { kNotPut, kPending, kTaken, kWritten, kUnused };
    std::vector<Chunk> chunks;
    std::array<std::set<std::uint32_t>, kMaxParts> pending;
    std::vector<bool> put;  // or being coded on a device
    std::uint32_t tensors_put = 0;
    std::array<std::uint32_t, kMaxParts> unwritten{};  // chunks of each part, those not put included
    SendProgress progress;
    double served = 0;
    bool idle = true;          // when last looked at, nothing waited
    unsigned told_sent = 0;    // parts that the receiver knows of
    std::uint32_t round = 0;   // the last that the receiver has asked in
    std::int32_t first_token;  // what the receiver knows, or has been sent; -1 before
    std::uint64_t chunks_posted = 0;
    std::uint64_t chunks_in_flight = 0;  // taken from pending, fate unknown
    bool stopped = false;
    bool abandoned = false;
    bool resumable = false;
    bool suspended = false;
    bool failed_since = false;  // some write, since take_failed()
    bool counted = false;       // its outcome is among the metrics
    std::exception_ptr error;
    Timeline times;
    std::vector<std::array<Clock::time_point, kMaxParts>> queued;  // since when, by tensor

   private:
    // The mutex is held.
    void set(std::uint32_t chunk, Chunk state);
    void leave_flight(std::uint32_t chunk, Chunk state);
    void send_again(std::uint32_t chunk);
    void count_written(const SlotLayout::Chunk& chunk);
    void end(const std::exception_ptr& cause);
    void check(const Grant& grant) const;
};

}  // namespace lynx
