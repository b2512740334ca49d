#include "stream/receive_state.hpp"

#include <algorithm>
#include <random>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "lynx/shards.hpp"
#include "stream/tensor_head.hpp"

namespace lynx {

namespace {

/// How long after the sender's last word and the last arrival a chunk counts as lost.
constexpr auto kLostAfter = std::chrono::milliseconds(40);
/// How long after a sender has stopped, and after the last arrival, what it has posted and has not arrived counts as
/// lost.
constexpr auto kLostAfterStop = std::chrono::milliseconds(250);
/// For what a process has left in sockets when it ended.
constexpr auto kHalfIn = std::chrono::seconds(2);
/// A chunk that was asked for so often and did not come whole never will.
constexpr std::uint8_t kMostAsked = 8;
/// That one message asks for: it stays far below what a link takes.
constexpr std::size_t kMostRuns = 16'384;

std::uint64_t random_seed() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

Manifest foreseen(Manifest manifest, const ReceiverOptions& options) {
    if (options.plan != nullptr) options.plan->check(manifest, options.shard);
    return manifest;
}

std::vector<MemoryRegion> open_regions(Node::Impl& node, const ArenaBlock& block, std::size_t bytes) {
    const ByteSpan memory = node.memory.span().subspan(block.offset(), std::max<std::size_t>(bytes, 1));
    std::vector<MemoryRegion> regions;
    regions.reserve(node.rails.size());
    for (const auto& rail : node.rails)
        regions.emplace_back(rail->fabric, memory, MemoryAccess::kRemoteWrite, node.memory.place());
    return regions;
}

}  // namespace

PlaneReceiver::State::State(Node::Impl& node_, Manifest manifest_, const ReceiverOptions& options, ArenaBlock room)
    : node(node_),
      manifest(foreseen(std::move(manifest_), options)),
      layout(node.memory.fitting(manifest)),
      bytes_per_second(options.bytes_per_second),
      codec(options.codec != nullptr ? *options.codec : Codec::best()),
      block(room.taken() ? std::move(room) : node.arena.allocate(layout.bytes())),
      seed(random_seed()),
      chunks(layout.chunks(), Chunk::kMissing),
      asked(layout.chunks()),
      missing(layout.tensors()),
      first_token(manifest.first_token),
      times(layout) {
    for (unsigned p = 0; p < layout.parts(); ++p) {
        revision.part_bytes.at(p) = layout.part_bytes(p);
        for (std::uint32_t t = 0; t < layout.tensors(); ++t) {
            missing[t].at(p) = layout.chunks(t, p).count();
            // A part without bytes (a rung without a plane, a tensor of 0 tokens) is complete as it is, and ready once
            // those before it are.
            if (missing[t].at(p) == 0) revision.tensors_ready.at(p) += 1;
        }
    }
    regions = open_regions(node, block, layout.bytes());
}

PlaneReceiver::State::~State() {
    node.slots.remove(slot);
    if (!counted && slot != SlotTable::kNoSlot)
        (complete() ? node.metrics.received.done : node.metrics.received.cancelled).add();
    if (settled || (complete() && !doubtful)) return;
    // The keys have ended, but a write that was half in goes on in some providers: soon over if the sender is gone; of
    // one that is stopped, or cut off, or that has given a write up, it may come whenever it goes on.
    if (sender_gone && !doubtful)
        block.give_back_after(kHalfIn);
    else
        block.keep();
}

void PlaneReceiver::State::on_arrival(std::uint32_t number, bool after_doubt) noexcept {
    const std::lock_guard lock(mutex);
    // Any peer can send any tag: what no write of this transfer can have is another's, and ends nothing here.
    if (number >= layout.chunks() || chunks[number] == Chunk::kUnused) return node.metrics.stray_writes.add();
    arrivals += 1;
    // A write that is given up is made again before the transfer can be complete, unless it has landed by itself: so
    // whoever finds it complete has been told.
    doubtful = doubtful || after_doubt;
    last_arrival = Clock::now();
    const SlotLayout::Chunk chunk = layout.chunk(number);
    const std::uint32_t first = layout.first_chunk(chunk.tensor);
    times.touch(chunk.tensor, chunk.part, last_arrival);
    if (chunks[number] == Chunk::kGood || chunks[number] == Chunk::kUnchecked) node.metrics.duplicate_chunks.add();
    if (number == first) {
        check_first(number, chunk);
    } else if (chunks[first] == Chunk::kGood) {
        check(number, chunk);
    } else {
        chunks[number] = Chunk::kUnchecked;  // its checksum comes with the first chunk
    }
    if (error || settled) notify();  // settle() counts every arrival
}

void PlaneReceiver::State::check_first(std::uint32_t number, const SlotLayout::Chunk& chunk) {
    const bool again = chunks[number] == Chunk::kGood;
    take(number, chunk, TensorHead::is_intact(layout, chunk.tensor, seed, memory()));
    if (again || chunks[number] != Chunk::kGood) return;
    // What the exact part does not use will never come.
    const unsigned exact_part = layout.exact_part();
    if (layout.parts() <= exact_part) return check_rest(number, chunk.tensor);
    const Extent exact = layout.part(chunk.tensor, exact_part);
    const std::uint64_t used = TensorHead::exact_bytes(layout, chunk.tensor, memory());
    // Less than the index would leave the rest of it to what the memory held before.
    const std::uint64_t least = exact.bytes == 0 ? 0 : layout.tensor(chunk.tensor).exact_index().bytes;
    if (used > exact.bytes || used < least) {
        end(std::make_exception_ptr(
            ProtocolError(text("request ", manifest.request_id, ": tensor ", chunk.tensor, " claims an exact tier of ",
                               used, " bytes; ", least, " to ", exact.bytes, " are possible"))));
        return;
    }
    const auto whole = layout.chunks(chunk.tensor, exact_part);
    for (std::uint32_t n = layout.exact_chunks(chunk.tensor, used).end; n < whole.end; ++n)
        leave(n, chunk.tensor, exact_part, Chunk::kUnused);
    revision.part_bytes.at(exact_part) -= exact.bytes - layout.exact_extent(chunk.tensor, used).bytes;
    layout.trim_exact(chunk.tensor, used);
    check_rest(number, chunk.tensor);
}

void PlaneReceiver::State::check_rest(std::uint32_t first, std::uint32_t tensor) {
    const std::uint32_t end_chunk = tensor + 1 < layout.tensors() ? layout.first_chunk(tensor + 1) : layout.chunks();
    for (std::uint32_t n = first + 1; n < end_chunk; ++n)
        if (chunks[n] == Chunk::kUnchecked) check(n, layout.chunk(n));
}

void PlaneReceiver::State::check(std::uint32_t number, const SlotLayout::Chunk& chunk) {
    take(number, chunk, TensorHead::is_intact(layout, chunk, number, seed, memory()));
}

void PlaneReceiver::State::take(std::uint32_t number, const SlotLayout::Chunk& chunk, bool intact) {
    if (chunks[number] == Chunk::kGood) {
        if (intact) return;  // once more the same
        end(std::make_exception_ptr(CorruptData(text("request ", manifest.request_id, ": chunk ", number,
                                                     " came once more, damaged, over what had been checked"))));
        return;
    }
    if (!intact) {
        node.metrics.damaged_chunks.add();
        chunks[number] = Chunk::kMissing;
        damaged.push_back(number);
        return;
    }
    revision.arrived_bytes.at(chunk.part) += chunk.extent.bytes;
    node.metrics.received_bytes.at(layout.tier(chunk.part)).add(chunk.extent.bytes);
    node.metrics.received_chunks.at(layout.tier(chunk.part)).add();
    PartTimes& part = times.at(chunk.tensor, chunk.part);
    part.bytes += chunk.extent.bytes;
    part.chunks += 1;
    leave(number, chunk.tensor, chunk.part, Chunk::kGood);
}

void PlaneReceiver::State::leave(std::uint32_t number, std::uint32_t tensor, unsigned part, Chunk state) {
    chunks[number] = state;
    if (--missing[tensor].at(part) > 0) return;
    revision.tensors_ready.at(part) += 1;
    revision.number += 1;
    times.at(tensor, part).complete = true;
    for (; parts_ready < layout.parts() && all_ready(parts_ready); ++parts_ready)
        if (parts_ready == 0 || parts_ready >= layout.rungs())  // with it its tier is complete
            node.metrics.part_time.at(layout.tier(parts_ready)).observe(last_arrival - granted);
    if (!counted && complete()) {
        node.metrics.received.done.add();
        counted = true;
    }
    notify();
}

void PlaneReceiver::State::end(const std::exception_ptr& cause) {
    if (!error) error = cause;
    if (!counted) node.metrics.received.add(cause, false);
    counted = true;
    notify();
}

void PlaneReceiver::State::notify() noexcept {
    changed.notify_all();
    if (signal) signal->ring();
}

void PlaneReceiver::State::lose(const std::exception_ptr& cause, bool ended) noexcept {
    const std::lock_guard lock(mutex);
    sender_gone = sender_gone || ended;
    end(cause);
}

void PlaneReceiver::State::fail(const std::exception_ptr& cause) noexcept {
    const std::lock_guard lock(mutex);
    end(cause);
}

bool PlaneReceiver::State::settle(std::uint64_t chunks_posted, Deadline deadline) noexcept {
    std::unique_lock lock(mutex);
    if (chunks_posted == kUnknownChunks) {
        doubtful = true;
        return false;
    }
    if (settling_since == Clock::time_point{}) settling_since = Clock::now();
    // Where written means landed, there is nothing to wait for: the sender has seen all its writes end.
    const bool landed = std::all_of(node.rails.begin(), node.rails.end(),
                                    [](const auto& rail) { return rail->fabric.delivery_complete(); });
    while (!landed && arrivals < chunks_posted) {
        // What the fabric has lost never arrives. The keys end here, so that nothing that comes yet can land.
        const auto quiet_at = std::max(settling_since, last_arrival) + kLostAfterStop;
        const auto now = Clock::now();
        if (now >= quiet_at) break;
        if (now >= deadline.at()) return false;
        changed.wait_until(lock, std::min(quiet_at, deadline.at()));
    }
    regions.clear();
    settled = true;
    return true;
}

void PlaneReceiver::State::on_sent(const Written& written) noexcept {
    const std::lock_guard lock(mutex);
    if (written.round != round) return;  // said before it had heard what is missing
    parts_sent = std::min(written.parts, layout.parts());
    last_arrival = std::max(last_arrival, Clock::now());
}

void PlaneReceiver::State::set_first_token(std::int32_t token) {
    const std::lock_guard lock(mutex);
    if (token < 0 || first_token >= 0)
        throw ProtocolError(text("request ", manifest.request_id, ": ", token, " came as its first token; ",
                                 token < 0 ? "it has to be 0 or more" : "it is known already"));
    first_token = token;
    notify();
}

Missing PlaneReceiver::State::take_missing(Clock::time_point now) {
    const std::lock_guard lock(mutex);
    std::vector<std::uint32_t> again;
    if (error) return {};
    again.swap(damaged);
    if (parts_sent > 0 && now - last_arrival > kLostAfter) {
        again.clear();  // found here once more
        for (std::uint32_t t = 0; t < layout.tensors(); ++t)
            for (unsigned p = 0; p < parts_sent; ++p) {
                if (missing[t].at(p) == 0) continue;
                const auto range = layout.chunks(t, p);
                for (std::uint32_t n = range.begin; n < range.end; ++n)
                    if (chunks[n] == Chunk::kMissing) again.push_back(n);
            }
    }
    std::erase_if(again, [&](std::uint32_t n) { return chunks[n] != Chunk::kMissing; });
    std::sort(again.begin(), again.end());  // damaged ones are there as they came, maybe twice
    again.erase(std::unique(again.begin(), again.end()), again.end());
    std::vector<ChunkRun> runs;
    for (auto it = again.begin(); it != again.end(); ++it) {
        const std::uint32_t n = *it;
        if (!runs.empty() && runs.back().first + runs.back().count == n) {
            runs.back().count += 1;
        } else if (runs.size() < kMostRuns) {
            runs.push_back({n, 1});
        } else {
            damaged.assign(it, again.end());  // in the next round
            break;
        }
        const SlotLayout::Chunk chunk = layout.chunk(n);
        times.at(chunk.tensor, chunk.part).resent += 1;
        node.metrics.asked_chunks.add();
        if (++asked[n] <= kMostAsked) continue;
        end(std::make_exception_ptr(
            CorruptData(text("request ", manifest.request_id, ": chunk ", n, " was sent ", int{kMostAsked},
                             " times and never came whole; ", "what has arrived before stays readable"))));
        return {};
    }
    if (again.empty()) return {};
    parts_sent = 0;
    return {std::move(runs), ++round};
}

Grant PlaneReceiver::State::grant() const {
    Grant grant{manifest.request_id, slot, seed, bytes_per_second, {}};
    for (const MemoryRegion& region : regions) grant.regions.push_back(region.remote());
    return grant;
}

Grant PlaneReceiver::State::grant_anew() {
    const std::lock_guard lock(mutex);
    regions = open_regions(node, block, layout.bytes());
    parts_sent = 0;
    return grant();
}

bool PlaneReceiver::State::complete_with_doubt() const {
    const std::lock_guard lock(mutex);
    return complete() && doubtful && !settled;
}

std::vector<std::uint8_t> PlaneReceiver::State::arrived() const {
    const std::lock_guard lock(mutex);
    std::vector<std::uint8_t> here(chunks.size());
    std::transform(chunks.begin(), chunks.end(), here.begin(),
                   [](Chunk c) { return std::uint8_t{c == Chunk::kGood || c == Chunk::kUnused}; });
    return here;
}

void PlaneReceiver::State::check_sent(unsigned part) const {
    if (part >= layout.parts())
        throw InvalidArgument(text("part ", part, " of request ", manifest.request_id,
                                   " was waited for; its manifest sends ", layout.parts(), ", counted from 0"));
}

void PlaneReceiver::State::begin_decode() {
    const std::lock_guard lock(mutex);
    decoding += 1;
}

void PlaneReceiver::State::end_decode(const std::exception_ptr& cause) {
    const std::lock_guard lock(mutex);
    decoding -= 1;
    if (!decode_error) decode_error = cause;
    changed.notify_all();
}

bool PlaneReceiver::State::tensor_ready(std::uint32_t tensor, unsigned part) const {
    if (part >= layout.parts()) return false;
    return std::all_of(missing[tensor].begin(), missing[tensor].begin() + part + 1, [](auto n) { return n == 0; });
}

bool PlaneReceiver::State::layer_ready(std::uint32_t layer, unsigned part) const {
    bool any = false;
    for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue})
        for (const std::uint32_t piece : layout.pieces(layer, role)) {
            if (!tensor_ready(piece, part)) return false;
            any = true;
        }
    return any;
}

bool PlaneReceiver::State::all_ready(unsigned part) const {
    if (part >= layout.parts()) return false;
    return std::all_of(revision.tensors_ready.begin(), revision.tensors_ready.begin() + part + 1,
                       [&](auto n) { return n == layout.tensors(); });
}

}  // namespace lynx
