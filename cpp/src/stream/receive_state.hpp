// What a PlaneReceiver and the endpoint's thread share about one incoming transfer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "lynx/plane_receiver.hpp"
#include "lynx/slot_layout.hpp"
#include "stream/node_impl.hpp"

namespace lynx {

struct PlaneReceiver::State {
    State(Node::Impl& node, Manifest manifest, const ReceiverOptions& options);
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // On the progress thread.
    void on_arrival(std::uint32_t tensor, unsigned part) noexcept;

    void fail(const std::exception_ptr& error) noexcept;
    [[nodiscard]] bool settle(std::uint64_t chunks_posted, Deadline deadline) noexcept;
    /// All parts 0..part of tensor are in. The mutex is held.
    [[nodiscard]] bool tensor_ready(std::uint32_t tensor, unsigned part) const;
    [[nodiscard]] bool layer_ready(std::uint32_t layer, unsigned part) const;
    [[nodiscard]] bool all_ready(unsigned part) const;

    // Not an owner: see PlaneSender::State.
    Node::Impl& node;
    const Manifest manifest;
    const SlotLayout layout;
    const std::uint64_t bytes_per_second;
    const Codec& codec;
    const std::size_t offset;  // in the arena
    std::uint32_t slot = 0;    // set once, before the state is shared

    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    // Guarded by mutex:
    std::vector<std::array<std::uint32_t, kMaxParts>> missing;  // chunks, by tensor and part
    std::vector<std::array<std::uint32_t, kMaxParts>> arrived;
    Revision revision;
    std::uint64_t chunks_arrived = 0;
    bool settled = false;  // the sender has stopped, and what it posted is in
    std::exception_ptr error;
};

}  // namespace lynx
