#include "lynx/plane_receiver.hpp"

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/receive_state.hpp"
#include "stream/tensor_head.hpp"

namespace lynx {

PlaneReceiver::PlaneReceiver(const Node& node, Manifest manifest, const ReceiverOptions& options)
    : PlaneReceiver(node, std::move(manifest), options, ArenaBlock()) {}

PlaneReceiver::PlaneReceiver(const Node& node, Manifest manifest, const ReceiverOptions& options, ArenaBlock room)
    : node_(node.impl()), state_(std::make_shared<State>(*node_, std::move(manifest), options, std::move(room))) {
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
    const std::lock_guard lock(state_->mutex);
    return state_->grant();
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
    return state_->complete();
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
    state_->check_sent(part);
    return wait_for(*state_, deadline, [&] { return state_->layer_ready(layer, part); });
}

bool PlaneReceiver::wait(unsigned part, Deadline deadline) const {
    state_->check_sent(part);
    return wait_for(*state_, deadline, [&] { return state_->all_ready(part); });
}

Revision PlaneReceiver::wait_newer(std::uint64_t after, Deadline deadline) const {
    (void)wait_for(*state_, deadline, [&] { return state_->revision.number > after; });
    return revision();
}

std::vector<PartTimes> PlaneReceiver::timeline() const {
    const std::lock_guard lock(state_->mutex);
    return state_->times.begun();
}

std::optional<std::int32_t> PlaneReceiver::first_token(Deadline deadline) const {
    if (!wait_for(*state_, deadline, [&] { return state_->first_token >= 0; })) return std::nullopt;
    const std::lock_guard lock(state_->mutex);
    return state_->first_token;
}

void PlaneReceiver::set_first_token(std::int32_t token) {
    state_->set_first_token(token);
}

std::optional<unsigned> PlaneReceiver::tier() const {
    const std::lock_guard lock(state_->mutex);
    std::optional<unsigned> tier;
    for (unsigned p = 0; p < state_->layout.parts() && state_->all_ready(p); ++p) tier = p;
    return tier;
}

namespace {

/// The part of `whole`, which begins at (first_head, first_token) of the layer, that `piece` fills.
MutableTensorView view_of(const MutableTensorView& whole, const ManifestTensor& piece, std::uint32_t first_head,
                          std::uint32_t first_token) {
    MutableTensorView view = whole;
    view.data =
        whole.vector(std::int64_t{piece.first_head - first_head}, std::int64_t{piece.first_token - first_token});
    view.shape = {piece.spec.heads, piece.spec.tokens, piece.spec.head_dim};
    return view;
}

/// Calls `decode(piece, view)` for each piece of K or V of a layer with the part of `destination` that it fills.
template <class Decode>
void for_each_piece(const PlaneReceiver::State& s, std::uint32_t layer, TensorRole role, unsigned part,
                    const MutableTensorView& destination, Decode decode) {
    const auto pieces = s.layout.pieces(layer, role);
    const std::string_view name = role == TensorRole::kKey ? "K" : "V";
    if (pieces.empty())
        throw InvalidArgument(text(name, " of layer ", layer, " was asked for; the manifest has no such tensor"));
    {
        const std::lock_guard lock(s.mutex);
        if (!std::all_of(pieces.begin(), pieces.end(), [&](auto t) { return s.tensor_ready(t, part); }))
            throw InvalidArgument(text(name, " of layer ", layer, " was asked for through part ", part,
                                       ", which has not arrived: wait for it first"));
    }
    if (pieces.size() == 1) return decode(pieces.front(), destination);
    const ManifestTensor& first = s.manifest.tensors[pieces.front()];
    const ManifestTensor& last = s.manifest.tensors[pieces.back()];
    const std::array<std::int64_t, 3> shape{last.first_head + last.spec.heads - first.first_head,
                                            last.first_token + last.spec.tokens - first.first_token,
                                            first.spec.head_dim};
    if (destination.shape != shape)
        throw InvalidArgument(text(name, " of layer ", layer, " is [", shape[0], ", ", shape[1], ", ", shape[2],
                                   "] and was to be decoded into [", destination.shape[0], ", ", destination.shape[1],
                                   ", ", destination.shape[2], "]"));
    for (const std::uint32_t piece : pieces)
        decode(piece, view_of(destination, s.manifest.tensors[piece], first.first_head, first.first_token));
}

/// What is to be decoded of one piece.
struct Coded {
    const PlaneLayout& layout;
    ByteSpan bytes;
    bool exact;
    unsigned planes;
    std::size_t part_end;  ///< of `bytes`, through the last part that is read
};

Coded coded_of(const PlaneReceiver::State& s, std::uint32_t piece, unsigned part) {
    const Extent place = s.layout.coded(piece);
    const PlaneLayout& layout = s.layout.tensor(piece);
    const bool exact = part >= s.layout.exact_part() && layout.has_exact() && place.bytes != 0;
    const unsigned rungs = s.layout.rungs();
    const unsigned last = std::min(part, layout.parts(rungs) - 1);
    // The head lies where the sender can write: it was checked as it came, and may have been written since.
    const auto used = exact ? std::min<std::uint64_t>(TensorHead::exact_bytes(s.layout, piece, s.memory()),
                                                      place.bytes - layout.exact_index().offset)
                            : 0;
    return {layout, s.memory().subspan(place.offset, place.bytes), exact, layout.planes_through(last, rungs),
            exact ? layout.exact_index().offset + used : layout.part(last, rungs).end()};
}

}  // namespace

void PlaneReceiver::decode(std::uint32_t layer, TensorRole role, unsigned part,
                           const MutableTensorView& destination) const {
    const State& s = *state_;
    s.node.memory.check_host("decoded");
    for_each_piece(s, layer, role, part, destination, [&](std::uint32_t piece, const MutableTensorView& view) {
        const Coded coded = coded_of(s, piece, part);
        if (coded.exact)
            s.codec.decode_exact(coded.layout, coded.bytes, view);
        else
            s.codec.decode(coded.layout, coded.bytes, coded.planes, view);
    });
}

void PlaneReceiver::decode(std::uint32_t layer, TensorRole role, unsigned part, const MutableTensorView& destination,
                           OnDevice order) const {
    State& s = *state_;
    s.node.memory.check_device("decoded");
    s.node.memory.flush_remote_writes();
    const bool direct = s.node.memory.path() == DevicePath::kDirect;
    for_each_piece(s, layer, role, part, destination, [&](std::uint32_t piece, const MutableTensorView& view) {
        const Coded coded = coded_of(s, piece, part);
        const auto start = [&](DeviceStream& stream, ByteSpan staging) {
            if (!direct) stream.copy(coded.bytes.first(coded.part_end), staging.first(coded.part_end));
            const ByteSpan bytes = direct ? coded.bytes : staging;
            stream.follow(order.stream);
            if (coded.exact)
                stream.decode_exact(coded.layout, bytes, view);
            else
                stream.decode(coded.layout, bytes, coded.planes, view);
            stream.precede(order.stream);
        };
        // Holds the state, and so the slot, until the device lets go of it.
        const auto finish = [state = state_, layer](DeviceStream&, ByteSpan, const DeviceOutcome& outcome,
                                                    std::exception_ptr error) {
            if (error) state->fail(error);
            if (!error && outcome.exact_fault)
                error = std::make_exception_ptr(
                    CorruptData(text("layer ", layer,
                                     ": the exact tier's bytes do not hold together; what was decoded from them is "
                                     "not the source")));
            state->end_decode(error);
        };
        s.begin_decode();
        try {
            s.node.decoding->run(direct ? 0 : coded.bytes.size(), start, finish);
        } catch (const CudaError&) {
            s.end_decode(nullptr);
            s.fail(std::current_exception());
            throw;
        } catch (...) {
            s.end_decode(nullptr);
            throw;
        }
    });
}

bool PlaneReceiver::wait_decoded(Deadline deadline) const {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    const bool done = s.changed.wait_until(lock, deadline.at(), [&] { return s.decoding == 0; });
    if (s.decode_error) std::rethrow_exception(std::exchange(s.decode_error, nullptr));
    return done;
}

void PlaneReceiver::fail(const std::exception_ptr& error) noexcept {
    state_->fail(error);
}

bool PlaneReceiver::settle(std::uint64_t chunks_posted, Deadline deadline) noexcept {
    return state_->settle(chunks_posted, deadline);
}

}  // namespace lynx
