// What a PlaneReceiver and the rails' threads share about one incoming transfer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "lynx/plane_receiver.hpp"
#include "lynx/slot_layout.hpp"
#include "stream/chunk_run.hpp"
#include "stream/node_impl.hpp"
#include "stream/timeline.hpp"

namespace lynx {

/// Rung whenever something in one of several transfers changes. Whoever waits reads the count, looks at the transfers,
/// and waits for another count: never with both locks.
class ChangeSignal {
   public:
    void ring() noexcept {
        const std::lock_guard lock(mutex_);
        count_ += 1;
        changed_.notify_all();
    }
    [[nodiscard]] std::uint64_t count() const noexcept {
        const std::lock_guard lock(mutex_);
        return count_;
    }
    void wait_past(std::uint64_t count, Deadline deadline) const noexcept {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline.at(), [&] { return count_ != count; });
    }

   private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::uint64_t count_ = 0;
};

struct PlaneReceiver::State {
    State(Node::Impl& node, Manifest manifest, const ReceiverOptions& options, ArenaBlock room = {});
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // On a rail's thread.
    void on_arrival(std::uint32_t chunk, bool after_doubt = false) noexcept;

    void fail(const std::exception_ptr& error) noexcept;
    /// Fails, too. `ended`: the sender has closed the connection or its process has ended; otherwise it may be stopped,
    /// and go on some day.
    void lose(const std::exception_ptr& cause, bool ended) noexcept;
    [[nodiscard]] bool settle(std::uint64_t chunks_posted, Deadline deadline) noexcept;

    // For whoever carries messages to the sender (see stream/peer_messages.hpp).
    /// The sender has written these.
    void on_sent(const Written& written) noexcept;
    /// Throws ProtocolError for a negative one and for a second one.
    void set_first_token(std::int32_t token);
    /// Chunks to ask for again: damaged, or missing though they were sent; may be empty. Looked at every few
    /// milliseconds. Fails the transfer if a chunk does not come whole however often it is asked for.
    [[nodiscard]] Missing take_missing(Clock::time_point now);
    /// For a sender that has lost its connection and comes again: a grant with keys of its own, the old ones end.
    [[nodiscard]] Grant grant_anew();
    /// Everything is here; but only the sender can say whether some write of it may land yet.
    [[nodiscard]] bool complete_with_doubt() const;
    /// One byte a chunk: 1 if it is here.
    [[nodiscard]] std::vector<std::uint8_t> arrived() const;

    /// Throws InvalidArgument for a part that never comes.
    void check_sent(unsigned part) const;

    // Around the work on a device that reads the slot.
    void begin_decode();
    void end_decode(const std::exception_ptr& error);

    // The mutex is held.
    /// All parts 0..part of tensor are in.
    [[nodiscard]] bool tensor_ready(std::uint32_t tensor, unsigned part) const;
    [[nodiscard]] bool layer_ready(std::uint32_t layer, unsigned part) const;
    [[nodiscard]] bool all_ready(unsigned part) const;
    [[nodiscard]] bool complete() const { return all_ready(layout.parts() - 1); }
    [[nodiscard]] Grant grant() const;

    [[nodiscard]] ByteSpan memory() const noexcept {
        return node.memory.span().subspan(block.offset(), layout.bytes());
    }

    // Not an owner: see PlaneSender::State.
    Node::Impl& node;
    const Manifest manifest;
    SlotLayout layout;  // its exact parts are trimmed, under the mutex, as their sizes come; else it stays as it is
    const std::uint64_t bytes_per_second;
    const Codec& codec;
    ArenaBlock block;
    const std::uint64_t seed;
    const Clock::time_point granted = Clock::now();
    std::uint32_t slot = 0;  // set once, before the state is shared

    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    // Guarded by mutex:
    std::shared_ptr<ChangeSignal> signal;  // of those who watch several transfers; may be none
    std::vector<MemoryRegion> regions;     // of the slot, one a rail; behind the block, so that they end before it
    enum class Chunk : std::uint8_t { kMissing, kUnchecked, kGood, kUnused };
    std::vector<Chunk> chunks;
    std::vector<std::uint8_t> asked;                            // how often, for each chunk
    std::vector<std::uint32_t> damaged;                         // to be asked for again
    std::vector<std::array<std::uint32_t, kMaxParts>> missing;  // chunks, by tensor and part
    unsigned parts_sent = 0;                                    // what the sender says, since it was last asked
    std::uint32_t round = 0;                                    // how often it was asked
    Clock::time_point last_arrival{};
    std::int32_t first_token;  // -1 until it has come
    Clock::time_point settling_since{};
    Revision revision;
    std::uint64_t arrivals = 0;
    bool settled = false;      // the sender has stopped, and what it posted is in
    bool doubtful = false;     // the sender may have given up writes that land yet, even if all is complete
    bool sender_gone = false;  // its process, or its end of the connection, is no more
    bool counted = false;      // its outcome is among the metrics
    std::exception_ptr error;
    Timeline times;
    unsigned parts_ready = 0;         // of all tensors
    std::size_t decoding = 0;         // pieces that a device is at
    std::exception_ptr decode_error;  // what went wrong there, until somebody is told

   private:
    // The mutex is held.
    void notify() noexcept;
    void check(std::uint32_t number, const SlotLayout::Chunk& chunk);
    void check_first(std::uint32_t number, const SlotLayout::Chunk& chunk);
    void check_rest(std::uint32_t first, std::uint32_t tensor);
    void take(std::uint32_t number, const SlotLayout::Chunk& chunk, bool intact);
    void leave(std::uint32_t number, std::uint32_t tensor, unsigned part, Chunk state);
    void end(const std::exception_ptr& cause);
};

}  // namespace lynx
