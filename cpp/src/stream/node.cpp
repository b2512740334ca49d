#include "lynx/node.hpp"

#include <algorithm>
#include <bit>

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
        if (!slots_.try_emplace(slot, state).second) continue;
        taken_.add(1);
        return slot;
    }
    throw ArenaFull(
        text("a slot was asked for; all ", ArrivalTag::kMaxSlots, " are taken: finish other requests first"));
}

void SlotTable::remove(std::uint32_t slot) noexcept {
    const std::lock_guard lock(mutex_);
    taken_.sub(slots_.erase(slot));
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

Rail::Rail(Node::Impl& node_, std::size_t index_, const FabricOptions& fabric_options,
           const EndpointOptions& endpoint_options)
    : node(node_),
      index(index_),
      fabric(fabric_options),
      region(fabric, node.memory.span(), MemoryAccess::kLocal, node.memory.place()),
      endpoint(fabric, *this, endpoint_options) {}

void Rail::on_arrival(std::uint32_t tag) noexcept {
    const ArrivalTag arrival = ArrivalTag::unpack(tag);
    // A write for a slot that nobody holds is a late one of a request that has ended: not an error.
    if (const auto receiver = node.slots.find(arrival.slot))
        receiver->on_arrival(arrival.chunk, arrival.after_doubt);
    else
        node.metrics.stray_writes.add();
}

const Write* Rail::next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept {
    return node.queue->next_write(index, now, retry_at);
}

bool Rail::on_refused() noexcept {
    node.metrics.refused_writes.add();
    return node.queue->on_refused(index);
}

void Rail::on_posted() noexcept {
    node.metrics.posted_writes.add();
    node.queue->on_posted(index);
}

void Rail::on_written(std::uint64_t cookie) noexcept {
    node.queue->on_written(index, cookie);
}

void Rail::on_write_failed(std::uint64_t cookie, std::exception_ptr error) noexcept {
    node.metrics.failed_writes.add();
    node.queue->on_write_failed(index, cookie, error);
}

void Rail::on_broken(const std::exception_ptr& error) noexcept {
    // The other rails carry on; without any, nothing will ever arrive.
    if (++node.broken_rails == node.rails_wanted) node.slots.fail_all(error);
}

Node::Impl::Impl(const NodeOptions& options)
    : memory(options),
      arena(options.arena_bytes),
      window_bytes(options.window_bytes),
      rails_wanted(options.more_rails.size() + 1) {
    if (options.more_rails.size() >= kMaxRails)
        throw InvalidArgument(text("a node with ", options.more_rails.size() + 1, " rails was asked for; at most ",
                                   kMaxRails, " are possible"));
    if (!(options.floor >= 0 && options.floor < 1))
        throw InvalidArgument(text("NodeOptions: floor is ", options.floor, "; it has to be 0 or more, and below 1"));
    queue = std::make_unique<SendQueue>(options.more_rails.size() + 1, options.floor);
    rails.reserve(options.more_rails.size() + 1);  // the first one's thread looks into it while the others are made
    const auto add_rail = [&](FabricOptions fabric) {
        fabric.device_memory = memory.path() == DevicePath::kDirect;
        rails.push_back(std::make_unique<Rail>(*this, rails.size(), fabric, options.endpoint));
    };
    add_rail(options.fabric);
    for (const FabricOptions& fabric : options.more_rails) add_rail(fabric);
    if (memory.path() == DevicePath::kNone) return;
    encoding.emplace(options.device);
    decoding.emplace(options.device);
}

Node::Impl::~Impl() = default;

void Node::Impl::wake() noexcept {
    for (const auto& rail : rails) rail->endpoint.wake();
}

// An address blob is a u8 number of rails, and of each a u16 length, little endian, and its endpoint's address.

std::vector<std::byte> Node::Impl::address() const {
    std::vector<std::byte> blob{static_cast<std::byte>(rails.size())};
    for (const auto& rail : rails) {
        const std::vector<std::byte> own = rail->endpoint.address();
        blob.push_back(static_cast<std::byte>(own.size() & 0xFF));
        blob.push_back(static_cast<std::byte>(own.size() >> 8));
        blob.insert(blob.end(), own.begin(), own.end());
    }
    return blob;
}

namespace {

constexpr std::uint64_t kUnmeasuredWindow = 8u << 20;

std::vector<ConstByteSpan> unpack_address(ConstByteSpan blob) {
    const auto malformed = [&] {
        return ProtocolError(text("a peer's address of ", blob.size(),
                                  " bytes is malformed; pass what the peer's Node::address() returned, unchanged"));
    };
    const std::size_t count = blob.empty() ? 0 : std::to_integer<std::size_t>(blob[0]);
    if (count == 0 || count > kMaxRails) throw malformed();
    std::vector<ConstByteSpan> addresses;
    ConstByteSpan rest = blob.subspan(1);
    for (std::size_t i = 0; i < count; ++i) {
        if (rest.size() < 2) throw malformed();
        const std::size_t bytes = std::to_integer<std::size_t>(rest[0]) | std::to_integer<std::size_t>(rest[1]) << 8;
        if (rest.size() - 2 < bytes) throw malformed();
        addresses.push_back(rest.subspan(2, bytes));
        rest = rest.subspan(2 + bytes);
    }
    if (!rest.empty()) throw malformed();
    return addresses;
}

}  // namespace

PeerId Node::Impl::add_peer(ConstByteSpan blob) {
    const auto addresses = unpack_address(blob);
    std::vector<PeerId> on_rails;
    try {
        // Each rail of ours writes to one of theirs; if they have fewer, several to the same.
        for (const auto& rail : rails)
            on_rails.push_back(rail->endpoint.add_peer(addresses[rail->index % addresses.size()]));
    } catch (...) {
        for (std::size_t r = 0; r < on_rails.size(); ++r) rails[r]->endpoint.remove_peer(on_rails[r]);
        throw;
    }
    std::vector<SendQueue::Way> ways;
    for (const auto& rail : rails) {
        // Where "written" does not mean "landed", there is nothing to measure by.
        const bool measured = rail->fabric.delivery_complete();
        ways.push_back({on_rails[rail->index], window_bytes == 0 && !measured ? kUnmeasuredWindow : window_bytes});
    }
    const PeerId peer = ++last_peer;
    queue->add_peer(peer, ways);
    return peer;
}

void Node::Impl::remove_peer(PeerId peer) noexcept {
    const auto on_rails = queue->remove_peer(peer);
    for (std::size_t r = 0; r < on_rails.size(); ++r) rails[r]->endpoint.remove_peer(on_rails[r]);
}

Node::Node(const NodeOptions& options) : impl_(std::make_shared<Impl>(options)) {}

const std::string& Node::provider() const noexcept {
    return impl_->rails.front()->fabric.provider();
}
std::size_t Node::rails() const noexcept {
    return impl_->rails.size();
}
std::vector<std::byte> Node::address() const {
    return impl_->address();
}
PeerId Node::add_peer(ConstByteSpan address) {
    return impl_->add_peer(address);
}
void Node::remove_peer(PeerId peer) noexcept {
    impl_->remove_peer(peer);
}
std::size_t Node::live_rails(PeerId peer) const noexcept {
    return impl_->queue->live_rails(peer);
}
std::uint32_t Node::chunk_bytes_for(PeerId peer) const noexcept {
    constexpr double kSeconds = 0.001;
    constexpr std::uint32_t kLeast = 64u << 10;
    constexpr std::uint32_t kMost = 1u << 20;
    const double rate = impl_->queue->rate(peer);
    if (rate <= 0) return kDefaultChunkBytes;
    const auto bytes = static_cast<std::uint32_t>(std::clamp(rate * kSeconds, double{kLeast}, double{kMost}));
    return std::bit_floor(bytes);
}
DevicePath Node::device_path() const noexcept {
    return impl_->memory.path();
}
const std::string& Node::why_not_direct() const noexcept {
    return impl_->memory.why_not_direct();
}
NodeMetrics Node::metrics() const noexcept {
    NodeMetrics metrics = impl_->metrics.read();
    metrics.arena_bytes = impl_->memory.size();
    metrics.arena_used_bytes = impl_->memory.size() - impl_->arena.free_bytes();
    metrics.slots_taken = impl_->slots.taken();
    const Arena::Held held = impl_->arena.held();
    metrics.slots_held = held.blocks;
    metrics.held_bytes = held.bytes;
    metrics.live_rails = impl_->queue->live_rails();
    return metrics;
}
std::size_t Node::arena_bytes() const noexcept {
    return impl_->memory.size();
}
std::size_t Node::arena_free_bytes() const noexcept {
    return impl_->arena.free_bytes();
}

}  // namespace lynx
