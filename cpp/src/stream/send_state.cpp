#include "stream/send_state.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/arrival_tag.hpp"
#include "stream/tensor_head.hpp"

namespace lynx {

namespace {

// The lower of two rates, of which 0 means none.
std::uint64_t lower_rate(std::uint64_t a, std::uint64_t b) {
    return a == 0 || b == 0 ? a + b : std::min(a, b);
}

}  // namespace

PlaneSender::State::State(Node::Impl& node_, PeerId peer_, Manifest manifest_, const Grant& grant_,
                          const SenderOptions& options, ArenaBlock room)
    : node(node_),
      peer(peer_),
      manifest(std::move(manifest_)),
      layout(node.memory.fitting(manifest)),
      codec(options.codec != nullptr ? *options.codec : Codec::best()),
      block(room.taken() ? std::move(room) : node.arena.allocate(layout.bytes())),
      grant(grant_),
      priority(options.priority),
      bucket(lower_rate(options.bytes_per_second, grant_.bytes_per_second)),
      chunks(layout.chunks(), Chunk::kNotPut),
      put(layout.tensors()),
      first_token(manifest.first_token),
      times(layout),
      queued(layout.tensors()) {
    for (unsigned p = 0; p < layout.parts(); ++p) {
        progress.part_bytes.at(p) = layout.part_bytes(p);
        for (std::uint32_t t = 0; t < layout.tensors(); ++t) unwritten.at(p) += layout.chunks(t, p).count();
    }
    check(grant);
}

PlaneSender::State::~State() = default;

void PlaneSender::State::check(const Grant& given) const {
    if (given.request_id != manifest.request_id)
        throw ProtocolError(text("the peer's grant is for request ", given.request_id, "; request ",
                                 manifest.request_id, " was offered"));
    if (given.slot >= ArrivalTag::kMaxSlots || given.regions.empty() ||
        std::any_of(given.regions.begin(), given.regions.end(),
                    [&](const RemoteRegion& r) { return r.bytes < layout.bytes(); }))
        throw ProtocolError(text("the peer granted slot ", given.slot, " over ", given.regions.size(),
                                 " rails, too small for request ", given.request_id, ", which takes ", layout.bytes(),
                                 " bytes"));
}

void PlaneSender::State::candidates(Clock::time_point now, double others_served, Clock::time_point& retry_at,
                                    std::array<std::optional<SendCandidate>, kSendClasses>& best) {
    const std::lock_guard lock(mutex);
    const bool was_idle = std::exchange(idle, true);
    if (error || stopped || suspended) return;
    idle =
        std::all_of(pending.begin(), pending.end(), [](const auto& chunks_of_part) { return chunks_of_part.empty(); });
    if (was_idle && !idle) served = std::max(served, others_served);
    for (unsigned p = 0; p < layout.parts(); ++p) {
        if (pending.at(p).empty()) continue;
        const auto at = bucket.ready_at(now);
        if (at > now) {
            retry_at = std::min(retry_at, at);
            return;
        }
        const std::uint32_t number = *pending.at(p).begin();
        const SlotLayout::Chunk chunk = layout.chunk(number);
        const auto send_class = static_cast<unsigned>(priority.classes.at(layout.tier(p)));
        if (best.at(send_class)) continue;  // an earlier part in the same class
        best.at(send_class) = SendCandidate{send_class, priority.deadline, manifest.tensors[chunk.tensor].layer, served,
                                            number,     chunk.extent.bytes};
    }
}

bool PlaneSender::State::take(std::uint32_t number) {
    const std::lock_guard lock(mutex);
    if (error || stopped || suspended || chunks[number] != Chunk::kPending) return false;
    const SlotLayout::Chunk chunk = layout.chunk(number);
    pending.at(chunk.part).erase(number);
    chunks[number] = Chunk::kTaken;
    bucket.take(chunk.extent.bytes);
    served += static_cast<double>(chunk.extent.bytes) / priority.weight;
    chunks_in_flight += 1;
    return true;
}

void PlaneSender::State::on_posted(std::uint32_t number, Clock::time_point now) {
    const std::lock_guard lock(mutex);
    chunks_posted += 1;
    const SlotLayout::Chunk chunk = layout.chunk(number);
    times.touch(chunk.tensor, chunk.part, now);
    const auto send_class = static_cast<unsigned>(priority.classes.at(layout.tier(chunk.part)));
    node.metrics.queue_wait.at(send_class).observe(now - queued[chunk.tensor].at(chunk.part));
}

bool PlaneSender::State::has_ended() {
    const std::lock_guard lock(mutex);
    return error != nullptr || stopped || suspended;
}

void PlaneSender::State::set(std::uint32_t number, Chunk state) {
    const SlotLayout::Chunk chunk = layout.chunk(number);
    const auto done = [](Chunk c) { return c == Chunk::kWritten || c == Chunk::kUnused; };
    unwritten.at(chunk.part) += done(chunks[number]) ? 1U : 0U;
    unwritten.at(chunk.part) -= done(state) ? 1U : 0U;
    PartTimes& part = times.at(chunk.tensor, chunk.part);
    if (chunks[number] == Chunk::kWritten) {
        part.bytes -= chunk.extent.bytes;
        part.chunks -= 1;
    }
    if (state == Chunk::kWritten) {
        part.bytes += chunk.extent.bytes;
        part.chunks += 1;
    }
    chunks[number] = state;
    if (state == Chunk::kPending && !error && !stopped) pending.at(chunk.part).insert(number);
}

void PlaneSender::State::leave_flight(std::uint32_t number, Chunk state) {
    chunks_in_flight -= 1;
    set(number, state);
    changed.notify_all();
}

void PlaneSender::State::send_again(std::uint32_t number) {
    const SlotLayout::Chunk chunk = layout.chunk(number);
    progress.resent_bytes += chunk.extent.bytes;
    times.at(chunk.tensor, chunk.part).resent += 1;
    queued[chunk.tensor].at(chunk.part) = Clock::now();  // of the part's other chunks, which are mostly gone, too
    node.metrics.resent_chunks.add();
}

void PlaneSender::State::end(const std::exception_ptr& cause) {
    if (!error) error = cause;
    if (!counted) node.metrics.sent.add(cause, all_written());
    counted = true;
    for (auto& queue : pending) queue.clear();
    changed.notify_all();
}

void PlaneSender::State::put_back(std::uint32_t number, bool was_posted) {
    const std::lock_guard lock(mutex);
    if (was_posted) send_again(number);
    leave_flight(number, Chunk::kPending);
}

void PlaneSender::State::on_written(std::uint32_t number, Clock::time_point now) {
    const std::lock_guard lock(mutex);
    const SlotLayout::Chunk chunk = layout.chunk(number);
    leave_flight(number, Chunk::kWritten);
    times.touch(chunk.tensor, chunk.part, now);
    const unsigned tier = layout.tier(chunk.part);
    node.metrics.sent_bytes.at(tier).add(chunk.extent.bytes);
    node.metrics.sent_chunks.at(tier).add();
    if (priority.deadline != Clock::time_point::max()) node.metrics.lateness.at(tier).observe(now - priority.deadline);
    count_written(chunk);
}

void PlaneSender::State::count_written(const SlotLayout::Chunk& chunk) {
    std::uint64_t& written = progress.written_bytes.at(chunk.part);
    // What is sent again counts once.
    written = std::min(written + chunk.extent.bytes, progress.part_bytes.at(chunk.part));
}

void PlaneSender::State::on_failed(std::uint32_t number, const std::exception_ptr& cause) {
    const std::lock_guard lock(mutex);
    suspended = suspended || resumable;
    failed_since = true;
    leave_flight(number, Chunk::kPending);
    if (!suspended) end(cause);
}

Write PlaneSender::State::write_of(std::uint32_t number, std::size_t rail, PeerId rail_peer, std::uint64_t cookie) {
    const std::lock_guard lock(mutex);
    const Extent extent = layout.chunk(number).extent;
    const RemoteRegion& region = grant.regions[rail % grant.regions.size()];
    return {.source = node.memory.span().subspan(block.offset() + extent.offset, extent.bytes),
            .descriptor = node.rails[rail]->region.descriptor(),
            .peer = rail_peer,
            .remote_address = region.address + extent.offset,
            .remote_key = region.key,
            .tag = ArrivalTag{grant.slot, number, abandoned}.pack(),
            .cookie = cookie};
}

PlaneSender::State::Claim PlaneSender::State::claim(std::uint32_t layer, TensorRole role, std::uint32_t at_token,
                                                    std::uint32_t at_head) {
    const auto pieces = layout.pieces(layer, role);
    const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](std::uint32_t i) {
        return manifest.tensors[i].first_token == at_token && manifest.tensors[i].first_head == at_head;
    });
    const auto name = [&] {
        return text(role == TensorRole::kKey ? "K" : "V", " of layer ", layer, " from token ", at_token, " and head ",
                    at_head, " on");
    };
    if (piece == pieces.end()) throw InvalidArgument(text(name(), " was put; the manifest has no such tensor"));
    const std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(error);
    if (put[*piece]) throw InvalidArgument(text(name(), " was put twice"));
    return {*piece, grant.seed};
}

void PlaneSender::State::finish_put(const Claim& claim, std::uint64_t exact_bytes, std::uint64_t nonfinite_vectors) {
    const ByteSpan slot = memory();
    if (layout.tensor(claim.tensor).has_exact()) {
        // The last write ends on a cache line: what another request has left in this memory is not the receiver's to
        // see.
        const Extent extent = layout.exact_extent(claim.tensor, exact_bytes);
        const ByteSpan sent = slot.subspan(extent.offset, extent.bytes);
        if (sent.size() > exact_bytes) std::memset(sent.data() + exact_bytes, 0, sent.size() - exact_bytes);
    }
    {
        const std::lock_guard lock(mutex);
        layout.trim_exact(claim.tensor, exact_bytes);
    }
    if (layout.coded(claim.tensor).bytes != 0) TensorHead::write(layout, claim.tensor, exact_bytes, claim.seed, slot);
    on_put(claim.tensor, exact_bytes, nonfinite_vectors);
    node.wake();
}

void PlaneSender::State::on_put(std::uint32_t tensor, std::uint64_t exact_bytes, std::uint64_t nonfinite_vectors) {
    const std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(error);
    progress.nonfinite_vectors += nonfinite_vectors;
    put[tensor] = true;
    queued[tensor].fill(Clock::now());
    tensors_put += 1;
    for (unsigned p = 0; p < layout.parts(); ++p) {
        const auto all = layout.chunks(tensor, p);
        const auto used = p == layout.exact_part() ? layout.exact_chunks(tensor, exact_bytes) : all;
        for (std::uint32_t n = all.begin; n < all.end; ++n) set(n, n < used.end ? Chunk::kPending : Chunk::kUnused);
        const std::size_t all_bytes = layout.part(tensor, p).bytes;
        if (p == layout.exact_part())
            progress.part_bytes[p] -= all_bytes - layout.exact_extent(tensor, exact_bytes).bytes;
    }
    changed.notify_all();
}

std::vector<PartTimes> PlaneSender::State::timeline() {
    const std::lock_guard lock(mutex);
    std::vector<PartTimes> parts = times.begun();
    for (PartTimes& part : parts) {
        const auto range = layout.chunks(part.tensor, part.part);
        part.complete = std::all_of(chunks.begin() + range.begin, chunks.begin() + range.end,
                                    [](Chunk c) { return c == Chunk::kWritten || c == Chunk::kUnused; });
    }
    return parts;
}

void PlaneSender::State::on_confirmed() noexcept {
    const std::lock_guard lock(mutex);
    if (!counted) node.metrics.sent.done.add();
    counted = true;
}

void PlaneSender::State::set_first_token(std::int32_t token) {
    const std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(error);
    if (token < 0)
        throw InvalidArgument(text("request ", manifest.request_id, ": ", token,
                                   " was given as the first token; it has to be 0 or more"));
    if (first_token >= 0)
        throw InvalidArgument(text("request ", manifest.request_id, ": ", token,
                                   " was given as the first token; the receiver has already been told ", first_token));
    first_token = token;
}

bool PlaneSender::State::all_written() const {
    return std::all_of(unwritten.begin(), unwritten.end(), [](auto n) { return n == 0; });
}

void PlaneSender::State::abandon() {
    const std::lock_guard lock(mutex);
    abandoned = true;
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

std::optional<std::uint64_t> PlaneSender::State::wait_drained(Deadline deadline) {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, deadline.at(), [&] { return chunks_in_flight == 0; })) return std::nullopt;
    return abandoned ? kUnknownChunks : chunks_posted;
}

std::uint64_t PlaneSender::State::posted_in_all() {
    const std::lock_guard lock(mutex);
    return abandoned ? kUnknownChunks : chunks_posted;
}

std::optional<Written> PlaneSender::State::take_sent() {
    const std::lock_guard lock(mutex);
    unsigned sent = 0;
    while (sent < layout.parts() && unwritten.at(sent) == 0) ++sent;
    if (error || sent <= told_sent) return std::nullopt;
    told_sent = sent;
    return Written{sent, round};
}

bool PlaneSender::State::resend(const Missing& missing) {
    {
        const std::lock_guard lock(mutex);
        std::uint64_t end = 0;
        for (const ChunkRun& run : missing.runs) {
            // In order and none twice: what a stranger asks for takes no longer than a look at each chunk.
            if (run.first < end || run.first >= chunks.size() || run.count > chunks.size() - run.first) return false;
            end = std::uint64_t{run.first} + run.count;
            for (std::uint32_t n = run.first; n < run.first + run.count; ++n) {
                // Others are on their way already, or not put yet: somebody else's write had their tag. Or the receiver
                // does not know yet that there is no such chunk.
                if (chunks[n] != Chunk::kWritten) continue;
                send_again(n);
                set(n, Chunk::kPending);
            }
        }
        told_sent = 0;
        round = missing.round;
    }
    node.wake();
    return true;
}

void PlaneSender::State::set_resumable(bool value) {
    const std::lock_guard lock(mutex);
    resumable = value;
}

void PlaneSender::State::suspend() {
    const std::lock_guard lock(mutex);
    suspended = true;
}

bool PlaneSender::State::may_resume() {
    const std::lock_guard lock(mutex);
    return suspended && !error && !stopped && chunks_in_flight == 0;
}

std::uint64_t PlaneSender::State::written_bytes() {
    const std::lock_guard lock(mutex);
    return std::accumulate(progress.written_bytes.begin(), progress.written_bytes.end(), std::uint64_t{0});
}

bool PlaneSender::State::take_failed() {
    const std::lock_guard lock(mutex);
    return std::exchange(failed_since, false);
}

void PlaneSender::State::resume(const Grant& given, std::span<const std::uint8_t> arrived) {
    check(given);
    {
        const std::lock_guard lock(mutex);
        if (given.seed != grant.seed || arrived.size() != chunks.size())
            throw ProtocolError(text("the peer's grant does not resume request ", given.request_id,
                                     ": it is for other bytes than those that were sent"));
        grant = given;
        for (std::uint32_t n = 0; n < chunks.size(); ++n) {
            if (chunks[n] == Chunk::kWritten && arrived[n] == 0) {
                send_again(n);
                set(n, Chunk::kPending);
            } else if (chunks[n] == Chunk::kPending && arrived[n] != 0) {
                const SlotLayout::Chunk chunk = layout.chunk(n);
                pending.at(chunk.part).erase(n);
                set(n, Chunk::kWritten);
                count_written(chunk);
            }
        }
        told_sent = 0;
        suspended = false;
        changed.notify_all();
    }
    node.wake();
}

}  // namespace lynx
