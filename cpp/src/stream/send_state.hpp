// What a PlaneSender and the endpoint's thread share about one outgoing transfer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "lynx/plane_sender.hpp"
#include "lynx/slot_layout.hpp"
#include "stream/node_impl.hpp"
#include "stream/token_bucket.hpp"

namespace lynx {

struct SendChunk {
    std::uint32_t tensor = 0;
    unsigned part = 0;
    Extent extent;  // in the slot, the same on both sides
};

struct PlaneSender::State {
    State(Node::Impl& node, PeerId peer, Manifest manifest, const Grant& grant, const SenderOptions& options);
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // For the queue, on the progress thread.
    /// The part of the chunk that may go now, or nothing; `retry_at` is lowered if only the rate holds it back.
    [[nodiscard]] std::optional<unsigned> candidate(Clock::time_point now, Clock::time_point& retry_at);
    /// Takes that part's next chunk out of the queue; nothing if it has been cancelled since.
    [[nodiscard]] std::optional<SendChunk> take(unsigned part);
    void on_posted();
    /// Failed, or stopped: nothing more is to be posted.
    [[nodiscard]] bool has_ended();
    /// A chunk that was taken and never posted.
    void drop(const SendChunk& chunk);
    void on_written(const SendChunk& chunk);
    void on_failed(const SendChunk& chunk, const std::exception_ptr& error);
    [[nodiscard]] std::optional<std::uint64_t> wait_drained(Deadline deadline);
    /// Posts nothing more, and tells nobody yet: fail() does.
    void stop() noexcept;
    [[nodiscard]] Write write_of(const SendChunk& chunk, std::uint64_t cookie) const;
    void fail(const std::exception_ptr& error) noexcept;

    // Not an owner: a state lives in its PlaneSender, which holds the node, or in the node's own queue. An owning
    // pointer would be a cycle, and could end the node on its own thread.
    Node::Impl& node;
    const PeerId peer;
    const Manifest manifest;
    const SlotLayout layout;
    const Grant grant;
    const std::uint64_t window_bytes;
    const Codec& codec;
    const std::size_t offset;  // in the arena

    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex:
    TokenBucket bucket;
    std::vector<bool> put;
    std::uint32_t tensors_put = 0;
    std::array<std::deque<SendChunk>, kMaxParts> pending;
    SendProgress progress;
    std::uint64_t chunks_posted = 0;
    std::uint64_t chunks_written = 0;
    std::uint64_t chunks_in_flight = 0;  // taken from pending, fate unknown
    std::uint64_t bytes_in_flight = 0;
    bool stopped = false;
    std::exception_ptr error;

   private:
    // The mutex is held.
    void leave_flight(const SendChunk& chunk);
    void end(const std::exception_ptr& cause);
};

}  // namespace lynx
