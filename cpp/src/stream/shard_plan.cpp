#include "lynx/error.hpp"
#include "stream/shard_ranges.hpp"

namespace lynx {

namespace {

constexpr std::size_t kMaxPieces = std::size_t{1} << 20;

ShardLayout validated(ShardLayout layout, const char* whose) {
    try {
        layout.validate();
    } catch (const InvalidArgument& e) {
        throw InvalidArgument(text("the ", whose, "' shards: ", e.what()));
    }
    return layout;
}

void check_same_cache(const std::vector<LayerShape>& sent, const std::vector<LayerShape>& received) {
    if (sent.size() != received.size())
        throw InvalidArgument(text("the senders' cache has ", sent.size(), " layers, the receivers' ", received.size(),
                                   ": run the same model on both sides"));
    for (std::size_t l = 0; l < sent.size(); ++l) {
        const auto same = [&](const char* what, std::uint64_t a, std::uint64_t b) {
            if (a != b)
                throw InvalidArgument(text("layer ", l, " has ", what, " ", a, " at the senders and ", b,
                                           " at the receivers: run the same model on both sides"));
        };
        same("heads", sent[l].heads, received[l].heads);
        same("head_dim", sent[l].head_dim, received[l].head_dim);
        same("tensors", 1u + sent[l].value, 1u + received[l].value);
        if (sent[l].dtype != received[l].dtype)
            throw InvalidArgument(text("layer ", l, " is ", name_of(sent[l].dtype), " at the senders and ",
                                       name_of(received[l].dtype), " at the receivers: use the same dtype"));
    }
}

std::uint32_t widest(const std::vector<LayerShape>& layers) {
    std::uint32_t heads = 0;
    for (const LayerShape& l : layers) heads = std::max(heads, l.heads);
    return heads;
}

std::string place_of(const ManifestTensor& t) {
    return text(t.role == TensorRole::kKey ? "K" : "V", " of layer ", t.layer, ", ",
                heads_text(t.first_head, t.spec.heads));
}

}  // namespace

ShardPlan::ShardPlan(ShardLayout senders, ShardLayout receivers)
    : senders_(validated(std::move(senders), "senders")), receivers_(validated(std::move(receivers), "receivers")) {
    check_same_cache(senders_.layers, receivers_.layers);
    pieces_.resize(senders_.ranks.size() * receivers_.ranks.size());
    const auto sending = ranges_by_layer(senders_);
    const auto receiving = ranges_by_layer(receivers_);
    std::size_t pieces = 0;
    for (std::uint32_t layer = 0; layer < sending.size(); ++layer) {
        const auto& sent = sending[layer];
        for (std::size_t begin = 0; begin < sent.size();) {
            // Those who own the same heads.
            std::size_t end = begin + 1;
            while (end < sent.size() && sent[end].same_heads(sent[begin])) ++end;
            const HeadRange& own = sent[begin];
            std::size_t k = 0;
            for (const HeadRange& want : receiving[layer]) {
                const std::uint32_t from = std::max(own.first, want.first);
                const std::uint32_t to = std::min(own.end(), want.end());
                if (from >= to) continue;
                const std::uint32_t sender = sent[begin + (layer + k++) % (end - begin)].rank;
                if (++pieces > kMaxPieces)
                    throw InvalidArgument(text("the shards make more than ", kMaxPieces, " pieces: use fewer ranks"));
                pieces_[sender * receivers_.ranks.size() + want.rank].push_back({layer, from, to - from});
            }
            begin = end;
        }
    }
}

std::span<const ShardPiece> ShardPlan::pieces(std::uint32_t sender, std::uint32_t receiver) const {
    if (sender >= senders_.ranks.size() || receiver >= receivers_.ranks.size())
        throw InvalidArgument(text("the pieces from sender ", sender, " to receiver ", receiver,
                                   " were asked for; the plan has ", senders_.ranks.size(), " senders and ",
                                   receivers_.ranks.size(), " receivers"));
    return pieces_[sender * receivers_.ranks.size() + receiver];
}

std::vector<std::uint32_t> ShardPlan::senders_to(std::uint32_t receiver) const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t s = 0; s < senders_.ranks.size(); ++s)
        if (!pieces(s, receiver).empty()) ranks.push_back(s);
    return ranks;
}

std::vector<std::uint32_t> ShardPlan::receivers_from(std::uint32_t sender) const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = 0; r < receivers_.ranks.size(); ++r)
        if (!pieces(sender, r).empty()) ranks.push_back(r);
    return ranks;
}

Manifest ShardPlan::manifest(const Manifest& whole, std::uint32_t sender, std::uint32_t receiver) const {
    const auto own = pieces(sender, receiver);
    if (own.empty()) throw InvalidArgument(text("sender ", sender, " has nothing for receiver ", receiver));
    Manifest manifest = whole;
    manifest.tensors.clear();
    manifest.shard = {sender,
                      static_cast<std::uint32_t>(senders_.ranks.size()),
                      receiver,
                      static_cast<std::uint32_t>(receivers_.ranks.size()),
                      static_cast<std::uint32_t>(senders_.layers.size()),
                      widest(senders_.layers),
                      senders_.ranks[sender]};
    for (const ManifestTensor& t : whole.tensors) {
        if (t.layer >= senders_.layers.size() || t.first_head != 0 || t.spec.heads != senders_.layers[t.layer].heads)
            throw InvalidArgument(text("the manifest of the whole cache has ", place_of(t),
                                       "; the plan cuts tensors of all heads of its layers"));
        const auto piece = std::lower_bound(own.begin(), own.end(), t.layer,
                                            [](const ShardPiece& p, std::uint32_t l) { return p.layer < l; });
        if (piece == own.end() || piece->layer != t.layer) continue;
        manifest.tensors.push_back(t);
        manifest.tensors.back().first_head = piece->first_head;
        manifest.tensors.back().spec.heads = piece->heads;
    }
    try {
        check(manifest, receiver);
    } catch (const ProtocolError& e) {
        throw InvalidArgument(text("the manifest of the whole cache does not fit the plan: ", e.what()));
    }
    return manifest;
}

void ShardPlan::check(const Manifest& manifest, std::uint32_t receiver) const {
    const ManifestShard& s = manifest.shard;
    if (s.senders != senders_.ranks.size() || s.receivers != receivers_.ranks.size() ||
        s.total_layers != senders_.layers.size() || s.total_heads != widest(senders_.layers))
        throw ProtocolError(text("a transfer of ", s.senders, " senders and ", s.receivers, " receivers, ",
                                 s.total_layers, " layers and ", s.total_heads, " heads; the plan here has ",
                                 senders_.ranks.size(), ", ", receivers_.ranks.size(), ", ", senders_.layers.size(),
                                 " and ", widest(senders_.layers)));
    if (s.receiver != receiver || s.sender >= s.senders)
        throw ProtocolError(
            text("a transfer from sender ", s.sender, " to receiver ", s.receiver, " came to receiver ", receiver));
    if (s.owned != senders_.ranks[s.sender])
        throw ProtocolError(text("sender ", s.sender, " owns other shards than the plan here has for it"));
    const auto own = pieces(s.sender, receiver);
    std::vector<std::uint8_t> seen(own.size());  // a bit for each role
    for (const ManifestTensor& t : manifest.tensors) {
        const auto piece = std::lower_bound(own.begin(), own.end(), t.layer,
                                            [](const ShardPiece& p, std::uint32_t l) { return p.layer < l; });
        if (piece == own.end() || piece->layer != t.layer || t.first_head != piece->first_head ||
            t.spec.heads != piece->heads)
            throw ProtocolError(text("sender ", s.sender, " offers ", place_of(t), ", which receiver ", receiver,
                                     " does not get from it"));
        const LayerShape& shape = senders_.layers[t.layer];
        if (t.spec.head_dim != shape.head_dim || t.spec.dtype != shape.dtype ||
            (t.role == TensorRole::kValue && !shape.value))
            throw ProtocolError(text("sender ", s.sender, " offers ", place_of(t), ", head_dim ", t.spec.head_dim,
                                     " of ", name_of(t.spec.dtype), "; the plan here has head_dim ", shape.head_dim,
                                     " of ", name_of(shape.dtype), shape.value ? "" : ", and no V"));
        seen[static_cast<std::size_t>(piece - own.begin())] |=
            static_cast<std::uint8_t>(1u << static_cast<unsigned>(t.role));
    }
    for (std::size_t i = 0; i < own.size(); ++i)
        if (seen[i] != (senders_.layers[own[i].layer].value ? 3 : 1))
            throw ProtocolError(text("sender ", s.sender, " has to bring receiver ", receiver, " K and V of layer ",
                                     own[i].layer, ", ", heads_text(own[i].first_head, own[i].heads),
                                     ", and does not offer both"));
}

void put_shard(PlaneSender& sender, std::uint32_t layer, TensorRole role, const TensorView& source,
               std::uint32_t first_token) {
    const Manifest& manifest = sender.manifest();
    const auto owner = std::find_if(manifest.shard.owned.begin(), manifest.shard.owned.end(), [&](const Shard& s) {
        return layer >= s.first_layer && layer - s.first_layer < s.layers;
    });
    if (owner == manifest.shard.owned.end())
        throw InvalidArgument(
            text("layer ", layer, " was put by sender ", manifest.shard.sender, ", which owns nothing of it"));
    if (source.heads() != owner->heads)
        throw InvalidArgument(text("a tensor of ", source.heads(), " heads was put for layer ", layer, "; sender ",
                                   manifest.shard.sender, " owns ", owner->heads, " of it: pass all of them"));
    for (const ManifestTensor& t : manifest.tensors) {
        if (t.layer != layer || t.role != role || t.first_token != first_token) continue;
        TensorView piece = source;
        piece.data = source.vector(t.first_head - owner->first_head, 0);
        piece.shape[0] = t.spec.heads;
        sender.put(layer, role, piece, first_token, t.first_head);
    }
}

}  // namespace lynx
