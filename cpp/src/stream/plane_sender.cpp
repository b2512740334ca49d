#include "lynx/plane_sender.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/send_queue.hpp"
#include "stream/send_state.hpp"

namespace lynx {

namespace {

void check(const Priority& priority) {
    if (!(priority.weight > 0 && std::isfinite(priority.weight)))
        throw InvalidArgument(text("a transfer's weight is ", priority.weight, "; it has to be above 0 and finite"));
    for (const SendClass c : priority.classes)
        if (static_cast<unsigned>(c) >= kSendClasses)
            throw InvalidArgument(
                text("a tier's class is ", static_cast<unsigned>(c), "; it has to be below ", kSendClasses));
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
    s.node.memory.check_host("put");
    const State::Claim claim = s.claim(layer, role, first_token, first_head);
    const PlaneLayout& layout = s.layout.tensor(claim.tensor);
    const Extent place = s.layout.coded(claim.tensor);
    const ByteSpan coded = s.memory().subspan(place.offset, place.bytes);
    const EncodeStats stats = s.codec.encode(source, layout, coded);
    std::uint64_t exact_bytes = 0;
    if (layout.has_exact()) exact_bytes = layout.exact_index().bytes + s.codec.encode_exact(source, layout, coded);
    s.finish_put(claim, exact_bytes, stats.nonfinite_vectors);
}

namespace {

/// On the lanes' thread: the planes and the exact tier's index are in the arena, and the rest of that tier follows now
/// that its length is known. Returns how much of the exact part is used.
std::uint64_t fetch_exact(const PlaneLayout& layout, DeviceStream& stream, ConstByteSpan staging, ByteSpan coded) {
    if (!layout.has_exact()) return 0;
    const Extent index = layout.exact_index();
    const Extent payload = layout.exact_payload();
    std::uint32_t end = 0;  // of the last group, in words of 8 bytes
    if (index.bytes != 0) std::memcpy(&end, coded.data() + index.end() - sizeof end, sizeof end);
    const std::uint64_t used = 8 * std::uint64_t{end};
    if (used > payload.bytes)
        throw CorruptData(text("the device coded an exact tier of ", used, " bytes; ", payload.bytes,
                               " is the most there can be: its memory was written by somebody else"));
    stream.copy(staging.subspan(payload.offset, used), coded.subspan(payload.offset, used));
    (void)stream.wait();
    return index.bytes + used;
}

}  // namespace

void PlaneSender::put(std::uint32_t layer, TensorRole role, const TensorView& source, OnDevice order,
                      std::uint32_t first_token, std::uint32_t first_head) {
    State& s = *state_;
    s.node.memory.check_device("put");
    const State::Claim claim = s.claim(layer, role, first_token, first_head);
    const PlaneLayout& layout = s.layout.tensor(claim.tensor);
    const bool direct = s.node.memory.path() == DevicePath::kDirect;
    const ByteSpan slot = s.memory();
    const Extent place = s.layout.coded(claim.tensor);
    const ByteSpan coded = slot.subspan(place.offset, place.bytes);
    const ByteSpan head = slot.subspan(s.layout.head(claim.tensor).offset, s.layout.head(claim.tensor).bytes);
    const auto start = [&](DeviceStream& stream, ByteSpan staging) {
        stream.follow(order.stream);
        stream.encode(source, layout, direct ? coded : staging);
        stream.precede(order.stream);
        if (direct) return stream.clear(head);  // all that it says without checksums and an exact tier
        const std::size_t known = layout.has_exact() ? layout.exact_payload().offset : place.bytes;
        stream.copy(staging.first(known), coded.first(known));
    };
    // Holds the state, and so the slot, until the device lets go of it.
    const auto finish = [state = state_, claim, direct, coded](DeviceStream& stream, ByteSpan staging,
                                                               const DeviceOutcome& outcome,
                                                               const std::exception_ptr& error) {
        try {
            if (error) std::rethrow_exception(error);
            if (direct) {
                state->on_put(claim.tensor, 0, outcome.nonfinite_vectors);
                return state->node.wake();
            }
            const PlaneLayout& coding = state->layout.tensor(claim.tensor);
            state->finish_put(claim, fetch_exact(coding, stream, staging, coded), outcome.nonfinite_vectors);
        } catch (...) {
            state->fail(std::current_exception());
        }
    };
    try {
        // There are lanes wherever check_device() passes.
        if (auto& lanes = s.node.encoding) lanes->run(direct ? 0 : place.bytes, start, finish);
    } catch (const CudaError&) {
        s.fail(std::current_exception());
        throw;
    }
    const std::lock_guard lock(s.mutex);
    s.put[claim.tensor] = true;
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
