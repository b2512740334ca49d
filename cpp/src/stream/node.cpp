#include "lynx/node.hpp"

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/arrival_tag.hpp"
#include "stream/node_impl.hpp"
#include "stream/receive_state.hpp"
#include "stream/send_queue.hpp"

namespace lynx {

std::uint32_t SlotTable::add(const std::shared_ptr<PlaneReceiver::State>& state) {
    const std::lock_guard lock(mutex_);
    // Round robin: a number is reused as late as possible, so that a stray write of an old request finds nobody.
    for (std::uint32_t tried = 0; tried < ArrivalTag::kMaxSlots; ++tried) {
        const std::uint32_t slot = next_++ % ArrivalTag::kMaxSlots;
        if (slots_.try_emplace(slot, state).second) return slot;
    }
    throw ArenaFull(
        text("a slot was asked for; all ", ArrivalTag::kMaxSlots, " are taken: finish other requests first"));
}

void SlotTable::remove(std::uint32_t slot) noexcept {
    const std::lock_guard lock(mutex_);
    slots_.erase(slot);
}

void SlotTable::fail_all(const std::exception_ptr& error) const noexcept {
    std::vector<std::shared_ptr<PlaneReceiver::State>> states;  // let go outside of the lock: their end takes it
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [slot, weak] : slots_)
            if (auto state = weak.lock()) states.push_back(std::move(state));
    }
    for (const auto& state : states) state->fail(error);
}

std::shared_ptr<PlaneReceiver::State> SlotTable::find(std::uint32_t slot) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto it = slots_.find(slot);
    return it == slots_.end() ? nullptr : it->second.lock();
}

Node::Impl::Impl(const NodeOptions& options)
    : fabric(options.fabric),
      memory(options.arena_bytes),
      region(fabric, memory.span()),
      arena(options.arena_bytes),
      queue(std::make_unique<SendQueue>()),
      endpoint(fabric, *this, options.endpoint) {}

Node::Impl::~Impl() = default;

void Node::Impl::on_arrival(std::uint32_t tag) noexcept {
    const ArrivalTag arrival = ArrivalTag::unpack(tag);
    // A write for a slot that nobody holds is a late one of a request that has ended: not an error.
    if (const auto receiver = slots.find(arrival.slot)) receiver->on_arrival(arrival.tensor, arrival.part);
}

const Write* Node::Impl::next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept {
    return queue->next_write(now, retry_at);
}

bool Node::Impl::on_refused() noexcept {
    return queue->on_refused();
}

void Node::Impl::on_posted() noexcept {
    queue->on_posted();
}

void Node::Impl::on_written(std::uint64_t cookie) noexcept {
    queue->on_written(cookie);
}

void Node::Impl::on_write_failed(std::uint64_t cookie, std::exception_ptr error) noexcept {
    queue->on_write_failed(cookie, error);
}

void Node::Impl::on_broken(const std::exception_ptr& error) noexcept {
    slots.fail_all(error);
}

Node::Node(const NodeOptions& options) : impl_(std::make_shared<Impl>(options)) {}

const std::string& Node::provider() const noexcept {
    return impl_->fabric.provider();
}
std::vector<std::byte> Node::address() const {
    return impl_->endpoint.address();
}
PeerId Node::add_peer(ConstByteSpan address) {
    return impl_->endpoint.add_peer(address);
}
void Node::remove_peer(PeerId peer) noexcept {
    impl_->endpoint.remove_peer(peer);
}
std::size_t Node::arena_bytes() const noexcept {
    return impl_->memory.size();
}
std::size_t Node::arena_free_bytes() const noexcept {
    return impl_->arena.free_bytes();
}

}  // namespace lynx
