#include "lynx/plane_receiver.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/receive_state.hpp"

namespace lynx {

PlaneReceiver::State::State(Node::Impl& node_, Manifest manifest_, const ReceiverOptions& options)
    : node(node_),
      manifest(std::move(manifest_)),
      layout(manifest),
      bytes_per_second(options.bytes_per_second),
      codec(options.codec != nullptr ? *options.codec : Codec::best()),
      offset(node.arena.allocate(layout.bytes())),
      missing(layout.tensors()),
      arrived(layout.tensors()) {
    for (unsigned p = 0; p < layout.parts(); ++p) {
        revision.part_bytes.at(p) = layout.part_bytes(p);
        for (std::uint32_t t = 0; t < layout.tensors(); ++t) {
            missing[t].at(p) = layout.chunks(t, p);
            // A part without bytes (a residual behind an 8-bit anchor, a tensor of 0 tokens) is complete as it is.
            if (missing[t].at(p) == 0) revision.tensors_ready.at(p) += 1;
        }
    }
}

PlaneReceiver::State::~State() {
    node.slots.remove(slot);
    // Otherwise a write of a sender that has not been heard of may still come: the memory stays taken.
    if (settled || chunks_arrived == layout.total_chunks()) node.arena.release(offset);
}

void PlaneReceiver::State::on_arrival(std::uint32_t tensor, unsigned part) noexcept {
    const std::lock_guard lock(mutex);
    if (tensor >= layout.tensors() || part >= layout.parts() || missing[tensor].at(part) == 0) {
        if (!error)
            error = std::make_exception_ptr(
                ProtocolError(text("request ", manifest.request_id, ": a write for part ", part, " of tensor ", tensor,
                                   " came that the manifest does not have")));
        changed.notify_all();
        return;
    }
    // Which of the chunks it was is unknown (32 bits say only the part): their sizes add up once all are in.
    const std::uint32_t index = arrived[tensor].at(part)++;
    revision.arrived_bytes.at(part) += layout.chunk(tensor, part, index).bytes;
    chunks_arrived += 1;
    if (--missing[tensor].at(part) == 0) {
        revision.tensors_ready.at(part) += 1;
        revision.number += 1;
        changed.notify_all();
    } else if (error) {
        changed.notify_all();  // settle() counts every chunk
    }
}

void PlaneReceiver::State::fail(const std::exception_ptr& cause) noexcept {
    const std::lock_guard lock(mutex);
    if (!error) error = cause;
    changed.notify_all();
}

bool PlaneReceiver::State::settle(std::uint64_t chunks_posted, Deadline deadline) noexcept {
    std::unique_lock lock(mutex);
    if (chunks_posted > layout.total_chunks()) return false;  // the sender cannot say
    settled = changed.wait_until(lock, deadline.at(), [&] { return chunks_arrived >= chunks_posted; });
    return settled;
}

bool PlaneReceiver::State::tensor_ready(std::uint32_t tensor, unsigned part) const {
    if (part >= layout.parts()) return false;
    return std::all_of(missing[tensor].begin(), missing[tensor].begin() + part + 1, [](auto n) { return n == 0; });
}

bool PlaneReceiver::State::layer_ready(std::uint32_t layer, unsigned part) const {
    bool any = false;
    for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
        const auto tensor = layout.find(layer, role);
        if (!tensor) continue;
        if (!tensor_ready(*tensor, part)) return false;
        any = true;
    }
    return any;
}

bool PlaneReceiver::State::all_ready(unsigned part) const {
    if (part >= layout.parts()) return false;
    return std::all_of(revision.tensors_ready.begin(), revision.tensors_ready.begin() + part + 1,
                       [&](auto n) { return n == layout.tensors(); });
}

PlaneReceiver::PlaneReceiver(const Node& node, Manifest manifest, const ReceiverOptions& options)
    : node_(node.impl()), state_(std::make_shared<State>(*node_, std::move(manifest), options)) {
    try {
        state_->slot = node_->slots.add(state_);
    } catch (...) {
        state_->settled = true;  // nobody was told of the memory
        state_->slot = SlotTable::kNoSlot;
        throw;
    }
}

PlaneReceiver::PlaneReceiver(PlaneReceiver&&) noexcept = default;

PlaneReceiver& PlaneReceiver::operator=(PlaneReceiver&& other) noexcept {
    std::swap(node_, other.node_);
    std::swap(state_, other.state_);
    return *this;
}

PlaneReceiver::~PlaneReceiver() = default;

const Manifest& PlaneReceiver::manifest() const noexcept {
    return state_->manifest;
}

Grant PlaneReceiver::grant() const {
    const RemoteRegion arena = node_->region.remote();
    return {.request_id = state_->manifest.request_id,
            .slot = state_->slot,
            .region = {arena.address + state_->offset, arena.key, state_->layout.bytes()},
            .bytes_per_second = state_->bytes_per_second};
}

Revision PlaneReceiver::revision() const {
    const std::lock_guard lock(state_->mutex);
    return state_->revision;
}

bool PlaneReceiver::ready(std::uint32_t layer, unsigned part) const {
    const std::lock_guard lock(state_->mutex);
    return state_->layer_ready(layer, part);
}

bool PlaneReceiver::ready(unsigned part) const {
    const std::lock_guard lock(state_->mutex);
    return state_->all_ready(part);
}

bool PlaneReceiver::complete() const {
    const std::lock_guard lock(state_->mutex);
    return state_->chunks_arrived == state_->layout.total_chunks();
}

namespace {

// Waits for `condition`; what is complete counts even if the transfer has failed since.
template <class State, class Condition>
bool wait_for(State& s, Deadline deadline, Condition condition) {
    std::unique_lock lock(s.mutex);
    s.changed.wait_until(lock, deadline.at(), [&] { return s.error != nullptr || condition(); });
    if (condition()) return true;
    if (s.error) std::rethrow_exception(s.error);
    return false;
}

}  // namespace

bool PlaneReceiver::wait(std::uint32_t layer, unsigned part, Deadline deadline) const {
    return wait_for(*state_, deadline, [&] { return state_->layer_ready(layer, part); });
}

bool PlaneReceiver::wait(unsigned part, Deadline deadline) const {
    return wait_for(*state_, deadline, [&] { return state_->all_ready(part); });
}

Revision PlaneReceiver::wait_newer(std::uint64_t after, Deadline deadline) const {
    (void)wait_for(*state_, deadline, [&] { return state_->revision.number > after; });
    return revision();
}

void PlaneReceiver::decode(std::uint32_t layer, TensorRole role, unsigned part,
                           const MutableTensorView& destination) const {
    const State& s = *state_;
    const auto tensor = s.layout.find(layer, role);
    const std::string_view name = role == TensorRole::kKey ? "K" : "V";
    if (!tensor)
        throw InvalidArgument(text(name, " of layer ", layer, " was asked for; the manifest has no such tensor"));
    {
        const std::lock_guard lock(s.mutex);
        if (!s.tensor_ready(*tensor, part))
            throw InvalidArgument(text(name, " of layer ", layer, " was asked for through part ", part,
                                       ", which has not arrived: wait for it first"));
    }
    const Extent place = s.layout.extent(*tensor);
    const PlaneLayout& layout = s.layout.tensor(*tensor);
    s.codec.decode(layout, s.node.memory.span().subspan(s.offset + place.offset, place.bytes),
                   layout.planes_through(std::min(part, layout.parts() - 1)), destination);
}

void PlaneReceiver::fail(const std::exception_ptr& error) noexcept {
    state_->fail(error);
}

bool PlaneReceiver::settle(std::uint64_t chunks_posted, Deadline deadline) noexcept {
    return state_->settle(chunks_posted, deadline);
}

}  // namespace lynx
