#include "lynx/plane_sender.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/arrival_tag.hpp"
#include "stream/send_queue.hpp"
#include "stream/send_state.hpp"

namespace lynx {

namespace {

// The lower of two rates, of which 0 means none.
std::uint64_t lower_rate(std::uint64_t a, std::uint64_t b) {
    return a == 0 || b == 0 ? a + b : std::min(a, b);
}

}  // namespace

PlaneSender::State::State(Node::Impl& node_, PeerId peer_, Manifest manifest_, const Grant& grant_,
                          const SenderOptions& options)
    : node(node_),
      peer(peer_),
      manifest(std::move(manifest_)),
      layout(manifest),
      grant(grant_),
      window_bytes(options.window_bytes),
      codec(options.codec != nullptr ? *options.codec : Codec::best()),
      offset(node.arena.allocate(layout.bytes())),
      bucket(lower_rate(options.bytes_per_second, grant_.bytes_per_second)),
      put(layout.tensors()) {
    for (unsigned p = 0; p < layout.parts(); ++p) progress.part_bytes.at(p) = layout.part_bytes(p);
}

PlaneSender::State::~State() {
    node.arena.release(offset);
}

std::optional<unsigned> PlaneSender::State::candidate(Clock::time_point now, Clock::time_point& retry_at) {
    const std::lock_guard lock(mutex);
    if (error || stopped || bytes_in_flight >= window_bytes) return std::nullopt;
    for (unsigned p = 0; p < layout.parts(); ++p) {
        if (!pending.at(p).empty()) {
            const auto at = bucket.ready_at(now);
            if (at <= now) return p;
            retry_at = std::min(retry_at, at);
            return std::nullopt;
        }
        // A residual waits until the anchors of all tensors have gone, also of those not coded yet.
        if (tensors_put < layout.tensors()) return std::nullopt;
    }
    return std::nullopt;
}

std::optional<SendChunk> PlaneSender::State::take(unsigned part) {
    const std::lock_guard lock(mutex);
    auto& queue = pending.at(part);
    if (error || stopped || queue.empty()) return std::nullopt;
    const SendChunk chunk = queue.front();
    queue.pop_front();
    bucket.take(chunk.extent.bytes);
    chunks_in_flight += 1;
    bytes_in_flight += chunk.extent.bytes;
    return chunk;
}

void PlaneSender::State::on_posted() {
    const std::lock_guard lock(mutex);
    chunks_posted += 1;
}

bool PlaneSender::State::has_ended() {
    const std::lock_guard lock(mutex);
    return error != nullptr || stopped;
}

void PlaneSender::State::leave_flight(const SendChunk& chunk) {
    chunks_in_flight -= 1;
    bytes_in_flight -= chunk.extent.bytes;
    changed.notify_all();
}

void PlaneSender::State::end(const std::exception_ptr& cause) {
    if (!error) error = cause;
    for (auto& queue : pending) queue.clear();
    changed.notify_all();
}

void PlaneSender::State::drop(const SendChunk& chunk) {
    const std::lock_guard lock(mutex);
    leave_flight(chunk);
}

void PlaneSender::State::on_written(const SendChunk& chunk) {
    const std::lock_guard lock(mutex);
    leave_flight(chunk);
    chunks_written += 1;
    progress.written_bytes.at(chunk.part) += chunk.extent.bytes;
}

void PlaneSender::State::on_failed(const SendChunk& chunk, const std::exception_ptr& cause) {
    const std::lock_guard lock(mutex);
    leave_flight(chunk);
    end(cause);
}

Write PlaneSender::State::write_of(const SendChunk& chunk, std::uint64_t cookie) const {
    return {.source = node.memory.span().subspan(offset + chunk.extent.offset, chunk.extent.bytes),
            .descriptor = node.region.descriptor(),
            .peer = peer,
            .remote_address = grant.region.address + chunk.extent.offset,
            .remote_key = grant.region.key,
            .tag = ArrivalTag{grant.slot, chunk.tensor, chunk.part}.pack(),
            .cookie = cookie};
}

void PlaneSender::State::stop() noexcept {
    const std::lock_guard lock(mutex);
    stopped = true;
    for (auto& queue : pending) queue.clear();
}

void PlaneSender::State::fail(const std::exception_ptr& cause) noexcept {
    const std::lock_guard lock(mutex);
    end(cause);
}

PlaneSender::PlaneSender(const Node& node, PeerId peer, Manifest manifest, const Grant& grant,
                         const SenderOptions& options)
    : node_(node.impl()), state_(std::make_shared<State>(*node_, peer, std::move(manifest), grant, options)) {
    if (options.window_bytes == 0) throw InvalidArgument("window_bytes is 0; nothing could ever be sent");
    if (grant.request_id != state_->manifest.request_id)
        throw ProtocolError(text("the peer's grant is for request ", grant.request_id, "; request ",
                                 state_->manifest.request_id, " was offered"));
    if (grant.region.bytes < state_->layout.bytes() || grant.slot >= ArrivalTag::kMaxSlots)
        throw ProtocolError(text("the peer granted slot ", grant.slot, " with ", grant.region.bytes, " bytes; request ",
                                 grant.request_id, " takes ", state_->layout.bytes()));
    node_->queue->add(state_);
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

void PlaneSender::put(std::uint32_t layer, TensorRole role, const TensorView& source) {
    State& s = *state_;
    const auto tensor = s.layout.find(layer, role);
    const std::string_view name = role == TensorRole::kKey ? "K" : "V";
    if (!tensor) throw InvalidArgument(text(name, " of layer ", layer, " was put; the manifest has no such tensor"));
    {
        const std::lock_guard lock(s.mutex);
        if (s.error) std::rethrow_exception(s.error);
        if (s.put[*tensor]) throw InvalidArgument(text(name, " of layer ", layer, " was put twice"));
    }
    const Extent place = s.layout.extent(*tensor);
    const EncodeStats stats = s.codec.encode(source, s.layout.tensor(*tensor),
                                             s.node.memory.span().subspan(s.offset + place.offset, place.bytes));
    {
        const std::lock_guard lock(s.mutex);
        if (s.error) std::rethrow_exception(s.error);
        s.progress.nonfinite_vectors += stats.nonfinite_vectors;
        s.put[*tensor] = true;
        s.tensors_put += 1;
        for (unsigned p = 0; p < s.layout.parts(); ++p)
            for (std::uint32_t c = 0; c < s.layout.chunks(*tensor, p); ++c)
                s.pending.at(p).push_back({*tensor, p, s.layout.chunk(*tensor, p, c)});
    }
    s.node.endpoint.wake();
}

bool PlaneSender::wait_written(Deadline deadline) {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    const bool done = s.changed.wait_until(
        lock, deadline.at(), [&] { return s.error != nullptr || s.chunks_written == s.layout.total_chunks(); });
    if (s.error) std::rethrow_exception(s.error);
    return done;
}

SendProgress PlaneSender::progress() const {
    const std::lock_guard lock(state_->mutex);
    return state_->progress;
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

std::optional<std::uint64_t> PlaneSender::State::wait_drained(Deadline deadline) {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, deadline.at(), [&] { return chunks_in_flight == 0; })) return std::nullopt;
    return chunks_posted;
}

}  // namespace lynx
