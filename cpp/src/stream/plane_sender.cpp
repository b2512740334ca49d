#include "lynx/plane_sender.hpp"

#include <algorithm>
#include <cstring>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/send_queue.hpp"
#include "stream/send_state.hpp"
#include "stream/tensor_head.hpp"

namespace lynx {

namespace {

void check(const Priority& priority) {
    if (!(priority.weight > 0))
        throw InvalidArgument(text("a transfer's weight is ", priority.weight, "; it has to be above 0"));
    for (const SendClass c : priority.classes)
        if (static_cast<unsigned>(c) >= kSendClasses)
            throw InvalidArgument(
                text("a part's class is ", static_cast<unsigned>(c), "; it has to be below ", kSendClasses));
}

}  // namespace

PlaneSender::PlaneSender(const Node& node, PeerId peer, Manifest manifest, const Grant& grant,
                         const SenderOptions& options)
    : PlaneSender(node, peer, std::move(manifest), grant, options, ArenaBlock()) {}

PlaneSender::PlaneSender(const Node& node, PeerId peer, Manifest manifest, const Grant& grant,
                         const SenderOptions& options, ArenaBlock room)
    : node_(node.impl()),
      state_(std::make_shared<State>(*node_, peer, std::move(manifest), grant, options, std::move(room))) {
    check(options.priority);
    if (!node_->queue->add(state_))
        throw InvalidArgument(
            text("a transfer to peer ", peer, " was to start; the node knows no such peer: add_peer first"));
}

PlaneSender::PlaneSender(PlaneSender&&) noexcept = default;

PlaneSender& PlaneSender::operator=(PlaneSender&& other) noexcept {
    std::swap(node_, other.node_);
    std::swap(state_, other.state_);
    return *this;
}

PlaneSender::~PlaneSender() {
    if (state_) state_->fail(std::make_exception_ptr(Cancelled("the sender was destroyed before all was written")));
}

void PlaneSender::put(std::uint32_t layer, TensorRole role, const TensorView& source, std::uint32_t first_token,
                      std::uint32_t first_head) {
    State& s = *state_;
    const auto pieces = s.layout.pieces(layer, role);
    const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](std::uint32_t i) {
        return s.manifest.tensors[i].first_token == first_token && s.manifest.tensors[i].first_head == first_head;
    });
    const auto name = [&] {
        return text(role == TensorRole::kKey ? "K" : "V", " of layer ", layer, " from token ", first_token,
                    " and head ", first_head, " on");
    };
    if (piece == pieces.end()) throw InvalidArgument(text(name(), " was put; the manifest has no such tensor"));
    const std::uint32_t tensor = *piece;
    const PlaneLayout& layout = s.layout.tensor(tensor);
    std::uint64_t seed = 0;
    {
        const std::lock_guard lock(s.mutex);
        if (s.error) std::rethrow_exception(s.error);
        if (s.put[tensor]) throw InvalidArgument(text(name(), " was put twice"));
        seed = s.grant.seed;
    }
    const ByteSpan slot = s.memory();
    const Extent place = s.layout.coded(tensor);
    const ByteSpan coded = slot.subspan(place.offset, place.bytes);
    const EncodeStats stats = s.codec.encode(source, layout, coded);
    std::uint64_t exact_bytes = 0;
    if (layout.has_exact()) {
        exact_bytes = layout.exact_index().bytes + s.codec.encode_exact(source, layout, coded);
        // The last write ends on a cache line: what another request has left in this memory is not the receiver's to
        // see.
        const Extent exact = s.layout.exact_extent(tensor, exact_bytes);
        const ByteSpan sent = slot.subspan(exact.offset, exact.bytes);
        if (sent.size() > exact_bytes) std::memset(sent.data() + exact_bytes, 0, sent.size() - exact_bytes);
    }
    {
        const std::lock_guard lock(s.mutex);
        s.layout.trim_exact(tensor, exact_bytes);
    }
    if (place.bytes != 0) TensorHead::write(s.layout, tensor, exact_bytes, seed, slot);
    s.on_put(tensor, exact_bytes, stats.nonfinite_vectors);
    s.node.wake();
}

void PlaneSender::set_priority(const Priority& priority) {
    check(priority);
    {
        const std::lock_guard lock(state_->mutex);
        state_->priority = priority;
    }
    state_->node.wake();
}

bool PlaneSender::wait_written(Deadline deadline) {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    const bool done = s.changed.wait_until(lock, deadline.at(), [&] { return s.error != nullptr || s.all_written(); });
    if (s.error) std::rethrow_exception(s.error);
    return done;
}

SendProgress PlaneSender::progress() const {
    const std::lock_guard lock(state_->mutex);
    return state_->progress;
}

std::vector<PartTimes> PlaneSender::timeline() const {
    return state_->timeline();
}

const Manifest& PlaneSender::manifest() const noexcept {
    return state_->manifest;
}

bool PlaneSender::failed() const noexcept {
    const std::lock_guard lock(state_->mutex);
    return state_->error != nullptr;
}

void PlaneSender::fail(const std::exception_ptr& error) noexcept {
    state_->fail(error);
}

std::optional<std::uint64_t> PlaneSender::wait_drained(Deadline deadline) {
    return state_->wait_drained(deadline);
}

}  // namespace lynx
