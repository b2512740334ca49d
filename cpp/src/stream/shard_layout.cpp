#include "lynx/error.hpp"
#include "manifest_generated.h"
#include "stream/flatbuffer.hpp"
#include "stream/shard_ranges.hpp"
#include "stream/shard_wire.hpp"

namespace lynx {

namespace {

constexpr std::uint16_t kShardLayoutVersion = 1;
constexpr std::size_t kMaxLayers = kMaxTensors / 2;

/// The i-th of n shares of `whole`, dealt as evenly as can be: where it begins and how much it is.
struct Share {
    std::uint32_t begin;
    std::uint32_t size;
};
Share share_of(std::uint32_t whole, std::uint32_t n, std::uint32_t i) {
    return {i * (whole / n) + std::min(i, whole % n), whole / n + (i < whole % n ? 1 : 0)};
}

Share heads_of(std::uint32_t heads, std::uint32_t tensor, std::uint32_t i) {
    if (heads >= tensor) return share_of(heads, tensor, i);
    if (tensor % heads != 0)
        throw InvalidArgument(text("a layer of ", heads, " heads cannot be dealt evenly to ", tensor,
                                   " ranks; give the shards of each rank"));
    return {i / (tensor / heads), 1};
}

void check_in_bounds(const ShardLayout& layout, std::uint32_t rank) {
    const auto total = static_cast<std::uint32_t>(layout.layers.size());
    std::uint32_t next = 0;
    for (const Shard& s : layout.ranks[rank]) {
        const auto refuse = [&](const std::string& why) {
            throw InvalidArgument(text("rank ", rank, " owns a shard of ", s.layers, " layers from ", s.first_layer,
                                       " on, ", s.heads, " heads from ", s.first_head, " on: ", why));
        };
        if (s.layers == 0 || s.heads == 0) refuse("a shard cannot be empty");
        if (s.first_layer < next)
            refuse("it comes before or over another one of this rank; of a layer a rank owns one run of heads");
        if (s.first_layer >= total || s.layers > total - s.first_layer) refuse(text("there are ", total, " layers"));
        for (std::uint32_t l = s.first_layer; l < s.first_layer + s.layers; ++l) {
            const std::uint32_t heads = layout.layers[l].heads;
            if (s.first_head >= heads || s.heads > heads - s.first_head) refuse(text("layer ", l, " has ", heads));
        }
        next = s.first_layer + s.layers;
    }
}

void check_covered(std::uint32_t layer, std::uint32_t heads, const std::vector<HeadRange>& ranges) {
    const auto nobody = [&](std::uint32_t first, std::uint32_t end) {
        throw InvalidArgument(text("layer ", layer, ": nobody owns ", heads_text(first, end - first)));
    };
    const HeadRange* before = nullptr;
    std::uint32_t next = 0;
    for (const HeadRange& r : ranges) {
        if (before != nullptr && r.same_heads(*before)) continue;  // replicated
        if (r.first < next)
            throw InvalidArgument(text("layer ", layer, ": rank ", before->rank, " owns ",
                                       heads_text(before->first, before->heads), " and rank ", r.rank, " ",
                                       heads_text(r.first, r.heads),
                                       "; two ranks own the very same heads or none in common"));
        if (r.first > next) nobody(next, r.first);
        next = r.end();
        before = &r;
    }
    if (next < heads) nobody(next, heads);
}

}  // namespace

ShardLayout ShardLayout::even(std::vector<LayerShape> layers, std::uint32_t tensor, std::uint32_t pipeline) {
    const auto total = static_cast<std::uint32_t>(layers.size());
    if (tensor == 0 || pipeline == 0 || tensor > kMaxRanks || pipeline > kMaxRanks || tensor * pipeline > kMaxRanks ||
        pipeline > total)
        throw InvalidArgument(text("a cache of ", total, " layers was to be owned by ", pipeline, " stages of ", tensor,
                                   " ranks; 1 to ", kMaxRanks,
                                   " ranks are possible, and a stage owns a layer at least"));
    ShardLayout layout{std::move(layers), {}};
    for (std::uint32_t stage = 0; stage < pipeline; ++stage) {
        const Share own = share_of(total, pipeline, stage);
        for (std::uint32_t i = 0; i < tensor; ++i) {
            auto& shards = layout.ranks.emplace_back();
            for (std::uint32_t l = own.begin; l < own.begin + own.size; ++l) {
                if (layout.layers[l].heads == 0) throw InvalidArgument(text("layer ", l, " has no heads"));
                const Share heads = heads_of(layout.layers[l].heads, tensor, i);
                if (!shards.empty() && shards.back().first_head == heads.begin && shards.back().heads == heads.size)
                    shards.back().layers += 1;
                else
                    shards.push_back({l, 1, heads.begin, heads.size});
            }
        }
    }
    layout.validate();
    return layout;
}

void ShardLayout::validate() const {
    if (layers.empty() || layers.size() > kMaxLayers)
        throw InvalidArgument(text("a cache of ", layers.size(), " layers; 1 to ", kMaxLayers, " are possible"));
    if (ranks.empty() || ranks.size() > kMaxRanks)
        throw InvalidArgument(text(ranks.size(), " ranks; 1 to ", kMaxRanks, " are possible"));
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const LayerShape& layer = layers[l];
        if (layer.heads == 0 || layer.heads > kMaxHeads)
            throw InvalidArgument(text("layer ", l, " has ", layer.heads, " heads; 1 to ", kMaxHeads, " are possible"));
        // head_dim and dtype as a tensor's are checked.
        try {
            (void)PlaneLayout({.dtype = layer.dtype, .heads = 1, .tokens = 0, .head_dim = layer.head_dim});
        } catch (const InvalidArgument& e) {
            throw InvalidArgument(text("layer ", l, ": ", e.what()));
        }
    }
    for (std::uint32_t r = 0; r < ranks.size(); ++r) check_in_bounds(*this, r);
    const auto ranges = ranges_by_layer(*this);
    for (std::uint32_t l = 0; l < layers.size(); ++l) check_covered(l, layers[l].heads, ranges[l]);
}

std::vector<std::byte> ShardLayout::serialize() const {
    validate();
    flatbuffers::FlatBufferBuilder b(256);
    std::vector<wire::LayerShape> shapes;
    shapes.reserve(layers.size());
    for (const LayerShape& l : layers)
        shapes.emplace_back(l.heads, l.head_dim, static_cast<std::uint8_t>(l.dtype), l.value);
    std::vector<flatbuffers::Offset<wire::Rank>> owners;
    owners.reserve(ranks.size());
    for (const auto& shards : ranks) owners.push_back(wire::CreateRank(b, wire_shards(b, shards)));
    const auto all = b.CreateVectorOfStructs(shapes);
    b.Finish(wire::CreateShardLayout(b, kShardLayoutVersion, all, b.CreateVector(owners)));
    return bytes_of(b);
}

ShardLayout ShardLayout::parse(ConstByteSpan bytes) {
    const auto& l = verified_root<wire::ShardLayout>(bytes, "shard layout");
    check_version(l.version(), kShardLayoutVersion, "shard layout");
    ShardLayout out;
    try {
        if (l.layers()->size() > kMaxLayers || l.ranks()->size() > kMaxRanks)
            throw InvalidArgument(text(l.layers()->size(), " layers and ", l.ranks()->size(), " ranks; at most ",
                                       kMaxLayers, " and ", kMaxRanks, " are possible"));
        for (const wire::LayerShape* s : *l.layers())
            out.layers.push_back({s->heads(), s->head_dim(), static_cast<DType>(s->dtype()), s->value()});
        for (const wire::Rank* r : *l.ranks()) out.ranks.push_back(shards_of(*r->shards()));
        out.validate();
    } catch (const InvalidArgument& e) {
        throw ProtocolError(text("the peer's shard layout was refused: ", e.what()));
    }
    return out;
}

}  // namespace lynx
