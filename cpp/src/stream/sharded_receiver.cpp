#include <algorithm>
#include <map>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "lynx/shards.hpp"
#include "stream/receive_state.hpp"
#include "stream/shard_ranges.hpp"

namespace lynx {

namespace {

constexpr auto kCancelDeadline = std::chrono::seconds(2);

std::uint64_t key(std::uint32_t layer, TensorRole role) {
    return std::uint64_t{layer} << 8 | static_cast<std::uint8_t>(role);
}

std::exception_ptr error_of(const PlaneReceiver& receiver) {
    const std::lock_guard lock(receiver.state()->mutex);
    return receiver.state()->error;
}

std::string reason_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        return text("another transfer of the same request failed: ", e.what());
    }
}

/// A request's transfers say the same of it, but for its first token, which some may not know yet.
void check_same_request(const Manifest& one, const Manifest& other) {
    const auto refuse = [&](const char* what) {
        throw ProtocolError(text("senders ", one.shard.sender, " and ", other.shard.sender, " do not agree on the ",
                                 what, " of request ", one.request_id));
    };
    if (one.request_id != other.request_id) refuse("number");
    if (one.model != other.model) refuse("model");
    if (one.context_tokens != other.context_tokens) refuse("context_tokens");
    if (one.parts != other.parts) refuse("parts");
    if (one.rungs != other.rungs) refuse("rungs");
    if (one.first_token >= 0 && other.first_token >= 0 && one.first_token != other.first_token) refuse("first token");
}

/// One tensor for each layer and role, over all pieces. The plan has been asked whether they are all there.
Manifest assembled(const std::vector<ShardSource>& sources) {
    Manifest whole = sources.front().receiver->manifest();
    whole.shard = {};
    std::map<std::uint64_t, std::pair<ManifestTensor, std::uint32_t>> tensors;  // and whose it was first
    whole.tensors.clear();
    for (const ShardSource& source : sources) {
        const Manifest& manifest = source.receiver->manifest();
        if (manifest.first_token >= 0) whole.first_token = manifest.first_token;
        std::map<std::uint64_t, ManifestTensor> own;
        for (const ManifestTensor& t : manifest.tensors) {
            const auto [at, added] = own.try_emplace(key(t.layer, t.role), t);
            if (added) continue;
            ManifestTensor& sum = at->second;  // another range of tokens of the same heads
            const std::uint32_t end = std::max(sum.first_token + sum.spec.tokens, t.first_token + t.spec.tokens);
            sum.first_token = std::min(sum.first_token, t.first_token);
            sum.spec.tokens = end - sum.first_token;
        }
        for (const auto& [place, t] : own) {
            const auto [at, added] = tensors.try_emplace(place, t, manifest.shard.sender);
            if (added) continue;
            ManifestTensor& sum = at->second.first;
            if (sum.first_token != t.first_token || sum.spec.tokens != t.spec.tokens)
                throw ProtocolError(text("layer ", t.layer, " has ", sum.spec.tokens, " tokens at sender ",
                                         at->second.second, " and ", t.spec.tokens, " at sender ",
                                         manifest.shard.sender));
            const std::uint32_t end = std::max(sum.first_head + sum.spec.heads, t.first_head + t.spec.heads);
            sum.first_head = std::min(sum.first_head, t.first_head);
            sum.spec.heads = end - sum.first_head;
        }
    }
    for (const auto& [place, t] : tensors) whole.tensors.push_back(t.first);
    return whole;
}

}  // namespace

struct ShardedReceiver::Impl {
    std::vector<ShardSource> sources;
    Manifest manifest;
    /// Which sources have something of a tensor, by layer and role.
    std::map<std::uint64_t, std::vector<std::size_t>> holders;
    std::map<std::uint64_t, ManifestTensor> tensors;
    std::shared_ptr<ChangeSignal> signal = std::make_shared<ChangeSignal>();

    std::mutex mutex;
    std::exception_ptr error;  // guarded by mutex: the first one

    ~Impl() {
        for (const ShardSource& s : sources) {
            const std::lock_guard lock(s.receiver->state()->mutex);
            if (s.receiver->state()->signal == signal) s.receiver->state()->signal = nullptr;
        }
    }

    template <class Condition>
    [[nodiscard]] bool wait_for(Deadline deadline, Condition condition) {
        for (;;) {
            const std::uint64_t count = signal->count();
            if (condition()) return true;  // what is complete counts even if the request has failed since
            throw_if_failed();
            if (deadline.passed()) return false;
            signal->wait_past(count, deadline);
        }
    }

    /// Ends all of it if one has ended.
    void throw_if_failed() {
        std::exception_ptr first;
        for (const ShardSource& s : sources) {
            if (!s.receiver->complete()) first = error_of(*s.receiver);
            if (first) break;
        }
        if (!first) return;
        {
            const std::lock_guard lock(mutex);
            if (error) std::rethrow_exception(error);
            error = first;
        }
        (void)end(first, reason_of(first), Deadline::after(kCancelDeadline));
        std::rethrow_exception(first);
    }

    /// True once no late write can land in any slot.
    bool end(const std::exception_ptr& cause, const std::string& reason, Deadline deadline) noexcept {
        // All stop first: a cancel may have to wait for its peer.
        for (const ShardSource& s : sources)
            if (!s.receiver->complete()) s.receiver->fail(cause);
        bool quiet = true;
        for (const ShardSource& s : sources) {
            if (s.receiver->complete()) continue;
            if (s.peer == nullptr || !s.peer->cancel(*s.receiver, reason, deadline)) quiet = false;
        }
        return quiet;
    }

    [[nodiscard]] bool layer_ready(std::uint32_t layer, unsigned part) const {
        bool any = false;
        for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
            const auto at = holders.find(key(layer, role));
            if (at == holders.end()) continue;
            any = true;
            for (const std::size_t i : at->second)
                if (!sources[i].receiver->ready(layer, part)) return false;
        }
        return any;
    }
};

ShardedReceiver::ShardedReceiver(const ShardPlan& plan, std::uint32_t receiver, std::vector<ShardSource> sources)
    : impl_(std::make_unique<Impl>()) {
    std::vector<std::uint32_t> missing = plan.senders_to(receiver);
    for (const ShardSource& s : sources) {
        if (s.receiver == nullptr) throw InvalidArgument("a shard's source has no receiver");
        const Manifest& manifest = s.receiver->manifest();
        plan.check(manifest, receiver);
        check_same_request(sources.front().receiver->manifest(), manifest);
        const auto at = std::find(missing.begin(), missing.end(), manifest.shard.sender);
        if (at == missing.end())
            throw ProtocolError(text("sender ", manifest.shard.sender, " sends request ", manifest.request_id,
                                     " to receiver ", receiver, " twice"));
        missing.erase(at);
    }
    if (!missing.empty())
        throw ProtocolError(text("receiver ", receiver, " gets ", missing.size(),
                                 " transfers more, the first from sender ", missing.front(),
                                 ": accept all of them first"));
    impl_->manifest = assembled(sources);
    for (const ManifestTensor& t : impl_->manifest.tensors) impl_->tensors.emplace(key(t.layer, t.role), t);
    for (std::size_t i = 0; i < sources.size(); ++i)
        for (const ManifestTensor& t : sources[i].receiver->manifest().tensors) {
            auto& holders = impl_->holders[key(t.layer, t.role)];
            if (holders.empty() || holders.back() != i) holders.push_back(i);
        }
    impl_->sources = std::move(sources);
    for (const ShardSource& s : impl_->sources) {
        const std::lock_guard lock(s.receiver->state()->mutex);
        s.receiver->state()->signal = impl_->signal;
    }
}

ShardedReceiver::ShardedReceiver(ShardedReceiver&&) noexcept = default;
ShardedReceiver& ShardedReceiver::operator=(ShardedReceiver&&) noexcept = default;
ShardedReceiver::~ShardedReceiver() = default;

const Manifest& ShardedReceiver::manifest() const noexcept {
    return impl_->manifest;
}

Revision ShardedReceiver::revision() const {
    Revision sum;
    for (const ShardSource& s : impl_->sources) {
        const Revision r = s.receiver->revision();
        sum.number += r.number;
        for (unsigned p = 0; p < kMaxParts; ++p) {
            sum.tensors_ready.at(p) += r.tensors_ready.at(p);
            sum.arrived_bytes.at(p) += r.arrived_bytes.at(p);
            sum.part_bytes.at(p) += r.part_bytes.at(p);
        }
    }
    return sum;
}

bool ShardedReceiver::ready(std::uint32_t layer, unsigned part) const {
    return impl_->layer_ready(layer, part);
}

bool ShardedReceiver::ready(unsigned part) const {
    return std::all_of(impl_->sources.begin(), impl_->sources.end(),
                       [&](const ShardSource& s) { return s.receiver->ready(part); });
}

bool ShardedReceiver::complete() const {
    return ready(impl_->manifest.parts - 1u);
}

std::optional<unsigned> ShardedReceiver::tier() const {
    std::optional<unsigned> tier;
    for (unsigned p = 0; p < impl_->manifest.parts && ready(p); ++p) tier = p;
    return tier;
}

bool ShardedReceiver::wait(std::uint32_t layer, unsigned part, Deadline deadline) const {
    impl_->sources.front().receiver->state()->check_sent(part);
    return impl_->wait_for(deadline, [&] { return ready(layer, part); });
}

bool ShardedReceiver::wait(unsigned part, Deadline deadline) const {
    impl_->sources.front().receiver->state()->check_sent(part);
    return impl_->wait_for(deadline, [&] { return ready(part); });
}

Revision ShardedReceiver::wait_newer(std::uint64_t after, Deadline deadline) const {
    (void)impl_->wait_for(deadline, [&] { return revision().number > after; });
    return revision();
}

std::optional<std::int32_t> ShardedReceiver::first_token(Deadline deadline) const {
    std::optional<std::int32_t> token;
    (void)impl_->wait_for(deadline, [&] {
        for (const ShardSource& s : impl_->sources) {
            const std::lock_guard lock(s.receiver->state()->mutex);
            if (s.receiver->state()->first_token >= 0) token = s.receiver->state()->first_token;
        }
        return token.has_value();
    });
    return token;
}

void ShardedReceiver::decode(std::uint32_t layer, TensorRole role, unsigned part,
                             const MutableTensorView& destination) const {
    const auto name = [&] { return text(role == TensorRole::kKey ? "K" : "V", " of layer ", layer); };
    const auto tensor = impl_->tensors.find(key(layer, role));
    if (tensor == impl_->tensors.end())
        throw InvalidArgument(text(name(), " was asked for; this rank's shard has no such tensor"));
    const TensorSpec& spec = tensor->second.spec;
    const std::array<std::int64_t, 3> shape{spec.heads, spec.tokens, spec.head_dim};
    if (destination.shape != shape)
        throw InvalidArgument(text(name(), " is [", shape[0], ", ", shape[1], ", ", shape[2],
                                   "] in this rank's shard and was to be decoded into [", destination.shape[0], ", ",
                                   destination.shape[1], ", ", destination.shape[2], "]"));
    if (!ready(layer, part))
        throw InvalidArgument(text(name(), " was asked for through part ", part, ", which has not arrived everywhere",
                                   ": wait for it first"));
    for (const std::size_t i : impl_->holders.at(key(layer, role))) {
        const PlaneReceiver& receiver = *impl_->sources[i].receiver;
        const auto& theirs = receiver.manifest().tensors;
        const auto piece = std::find_if(theirs.begin(), theirs.end(),
                                        [&](const ManifestTensor& t) { return t.layer == layer && t.role == role; });
        MutableTensorView view = destination;
        view.data = destination.vector(piece->first_head - tensor->second.first_head, 0);
        view.shape[0] = piece->spec.heads;
        receiver.decode(layer, role, part, view);
    }
}

void ShardedReceiver::finish() {
    for (const ShardSource& s : impl_->sources)
        if (s.peer != nullptr) s.peer->finish(*s.receiver);
}

bool ShardedReceiver::cancel(const std::string& reason, Deadline deadline) noexcept {
    const auto cause = std::make_exception_ptr(Cancelled(text("cancelled on this side: ", reason)));
    {
        const std::lock_guard lock(impl_->mutex);
        if (!impl_->error) impl_->error = cause;
    }
    return impl_->end(cause, reason, deadline);
}

}  // namespace lynx
