#include "lynx/manifest.hpp"

#include <algorithm>
#include <span>
#include <tuple>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "manifest_generated.h"
#include "stream/flatbuffer.hpp"
#include "stream/shard_wire.hpp"

namespace lynx {

namespace {

constexpr std::size_t kMaxModelName = 1024;

void check(bool ok, std::string_view field, std::uint64_t value, std::string_view range) {
    if (!ok) throw InvalidArgument(text("manifest: ", field, " is ", value, "; it has to be ", range));
}

using Piece = const ManifestTensor*;

/// Do the pieces of one layer's K or V form rows?
void check_rows(std::span<const Piece> pieces) {
    const auto refuse = [&](const ManifestTensor& piece, const char* why) {
        throw InvalidArgument(text("manifest: the piece of layer ", piece.layer, " from token ", piece.first_token,
                                   " and head ", piece.first_head, " on ", why,
                                   "; each range of tokens has to be covered by one run of heads, once"));
    };
    std::uint32_t next_token = pieces.front()->first_token;
    const std::uint32_t first_head = pieces.front()->first_head;
    std::uint32_t end_head = 0;
    for (std::size_t i = 0; i < pieces.size();) {
        const std::uint32_t row = pieces[i]->first_token;
        const std::uint32_t tokens = pieces[i]->spec.tokens;
        if (row != next_token) refuse(*pieces[i], "does not begin where the one before it ends");
        std::uint32_t next_head = first_head;
        for (; i < pieces.size() && pieces[i]->first_token == row; ++i) {
            const ManifestTensor& piece = *pieces[i];
            if (piece.first_head != next_head) refuse(piece, "is given twice, or leaves a gap");
            if (piece.spec.tokens != tokens) refuse(piece, "has another number of tokens than its neighbour");
            if (piece.spec.head_dim != pieces.front()->spec.head_dim) refuse(piece, "has another head_dim");
            next_head += piece.spec.heads;
        }
        if (end_head != 0 && next_head != end_head) refuse(*pieces[i - 1], "ends at another head than the others");
        end_head = next_head;
        next_token += tokens;
    }
}

void check_pieces(const std::vector<ManifestTensor>& tensors) {
    std::vector<Piece> pieces;
    pieces.reserve(tensors.size());
    for (const ManifestTensor& t : tensors) pieces.push_back(&t);
    const auto place = [](Piece p) { return std::tuple(p->layer, p->role, p->first_token, p->first_head); };
    std::sort(pieces.begin(), pieces.end(), [&](Piece a, Piece b) { return place(a) < place(b); });
    for (auto begin = pieces.begin(); begin != pieces.end();) {
        const auto end = std::find_if(
            begin, pieces.end(), [&](Piece p) { return p->layer != (*begin)->layer || p->role != (*begin)->role; });
        check_rows({begin, end});
        begin = end;
    }
}

/// Is what a sender says of itself whole, and does it own what it sends?
void check_shard(const ManifestShard& shard, const std::vector<ManifestTensor>& tensors) {
    check(shard.senders >= 1 && shard.senders <= kMaxRanks, "senders", shard.senders, "1 to 256");
    check(shard.receivers >= 1 && shard.receivers <= kMaxRanks, "receivers", shard.receivers, "1 to 256");
    check(shard.sender < shard.senders, "sender", shard.sender, "below senders");
    check(shard.receiver < shard.receivers, "receiver", shard.receiver, "below receivers");
    if (shard.owned.empty()) {
        check(shard.senders == 1 && shard.receivers == 1, "senders", shard.senders,
              "1, and receivers too, where no shard is owned");
        return;
    }
    std::uint32_t layer = 0;
    for (const Shard& s : shard.owned) {
        check(s.first_layer >= layer, "first_layer of a shard", s.first_layer, "behind the shard before it");
        check(s.layers >= 1 && s.first_layer < shard.total_layers && s.layers <= shard.total_layers - s.first_layer,
              "layers of a shard", s.layers, "1 or more, and end within total_layers");
        check(s.heads >= 1 && s.first_head < shard.total_heads && s.heads <= shard.total_heads - s.first_head,
              "heads of a shard", s.heads, "1 or more, and end within total_heads");
        layer = s.first_layer + s.layers;
    }
    for (const ManifestTensor& t : tensors) {
        const auto after = std::upper_bound(shard.owned.begin(), shard.owned.end(), t.layer,
                                            [](std::uint32_t l, const Shard& s) { return l < s.first_layer; });
        const Shard* owner = after == shard.owned.begin() ? nullptr : &*(after - 1);
        if (owner == nullptr || t.layer - owner->first_layer >= owner->layers || t.first_head < owner->first_head ||
            t.first_head + t.spec.heads > owner->first_head + owner->heads)
            throw InvalidArgument(text("manifest: sender ", shard.sender, " sends ", t.spec.heads, " heads from ",
                                       t.first_head, " on of layer ", t.layer, ", which it does not own"));
    }
}

}  // namespace

void Manifest::validate() const {
    check(model.size() <= kMaxModelName, "the length of model", model.size(), "at most 1024");
    check(rungs >= 1 && rungs <= kMaxRungs, "rungs", rungs, "1 to 7");
    check(parts == 1 || parts == 1 + residual_part() || parts == 1 + exact_part(), "parts", parts,
          text("1 (anchors), ", 1 + residual_part(), " (with residuals) or ", 1 + exact_part(), " (with exact tiers)"));
    check(chunk_bytes == 0 || (chunk_bytes >= kMinChunkBytes && chunk_bytes <= kMaxChunkBytes), "chunk_bytes",
          chunk_bytes, "4 KiB to 64 MiB, or 0 for any");
    check(!tensors.empty() && tensors.size() <= kMaxTensors, "the number of tensors", tensors.size(), "1 to 16384");
    std::uint64_t total = 0;
    for (const ManifestTensor& t : tensors) {
        check(t.role <= TensorRole::kValue, "role", static_cast<unsigned>(t.role), "0 (key) or 1 (value)");
        const PlaneLayout layout(t.spec);
        check(!layout.has_exact() || parts > exact_part(), "parts", parts,
              text(1 + exact_part(), " where a tensor has an exact tier"));
        check(rungs == 1 || t.spec.coding != Coding::kRaw, "rungs", rungs, "1 where a tensor is sent raw");
        check(t.first_token <= kMaxTokens - t.spec.tokens, "first_token", t.first_token, "within 2^26 tokens");
        check(t.first_head <= kMaxHeads - t.spec.heads, "first_head", t.first_head, "within 2^16 heads");
        total += layout.bytes();  // bounded by its own limits, so that the sum cannot wrap
        check(total <= kMaxTransferBytes, "the total size", total, "at most 2^44 bytes");
    }
    check_pieces(tensors);
    check_shard(shard, tensors);
}

std::vector<std::byte> Manifest::serialize() const {
    validate();
    flatbuffers::FlatBufferBuilder b(1024);
    std::vector<flatbuffers::Offset<wire::Tensor>> offsets;
    offsets.reserve(tensors.size());
    for (const ManifestTensor& t : tensors)
        offsets.push_back(
            wire::CreateTensor(b, t.layer, static_cast<std::uint8_t>(t.role), static_cast<std::uint8_t>(t.spec.coding),
                               static_cast<std::uint8_t>(t.spec.dtype), t.spec.anchor_bits, t.spec.heads, t.spec.tokens,
                               t.spec.head_dim, t.spec.sink_tokens, t.spec.exact, t.first_token, t.first_head));
    flatbuffers::Offset<wire::ManifestShard> sharded;
    if (!shard.owned.empty())
        sharded = wire::CreateManifestShard(b, shard.sender, shard.senders, shard.receiver, shard.receivers,
                                            shard.total_layers, shard.total_heads, wire_shards(b, shard.owned));
    b.Finish(wire::CreateManifest(b, kManifestVersion, request_id, b.CreateString(model), context_tokens, first_token,
                                  parts, chunk_bytes, b.CreateVector(offsets), checksums, sharded, rungs));
    return bytes_of(b);
}

Manifest Manifest::parse(ConstByteSpan bytes) {
    const auto& m = verified_root<wire::Manifest>(bytes, "manifest");
    check_version(m.version(), kManifestVersion, "manifest");
    Manifest out{m.request_id(),
                 m.model()->str(),
                 m.context_tokens(),
                 m.first_token(),
                 m.parts(),
                 m.chunk_bytes(),
                 m.checksums(),
                 {},
                 {},
                 m.rungs()};
    if (const wire::ManifestShard* s = m.shard())
        out.shard = {s->sender(),       s->senders(),     s->receiver(),         s->receivers(),
                     s->total_layers(), s->total_heads(), shards_of(*s->owned())};
    try {
        check(m.tensors()->size() <= kMaxTensors, "the number of tensors", m.tensors()->size(), "1 to 16384");
        out.tensors.reserve(m.tensors()->size());
        for (const wire::Tensor* t : *m.tensors())
            out.tensors.push_back({t->layer(),
                                   static_cast<TensorRole>(t->role()),
                                   {static_cast<Coding>(t->coding()), static_cast<DType>(t->dtype()), t->heads(),
                                    t->tokens(), t->head_dim(), t->anchor_bits(), t->sink_tokens(), t->exact()},
                                   t->first_token(),
                                   t->first_head()});
        out.validate();
    } catch (const InvalidArgument& e) {
        throw ProtocolError(text("the peer's manifest was refused: ", e.what()));
    }
    return out;
}

std::vector<std::byte> Grant::serialize() const {
    flatbuffers::FlatBufferBuilder b(256);
    std::vector<wire::Region> rails;
    rails.reserve(regions.size());
    for (const RemoteRegion& r : regions) rails.emplace_back(r.address, r.key, r.bytes);
    b.Finish(wire::CreateGrant(b, kManifestVersion, request_id, slot, bytes_per_second, seed,
                               b.CreateVectorOfStructs(rails)));
    return bytes_of(b);
}

Grant Grant::parse(ConstByteSpan bytes) {
    const auto& g = verified_root<wire::Grant>(bytes, "grant");
    check_version(g.version(), kManifestVersion, "grant");
    Grant out{g.request_id(), g.slot(), g.seed(), g.bytes_per_second(), {}};
    if (g.regions()->size() == 0 || g.regions()->size() > kMaxRails)
        throw ProtocolError(
            text("the peer granted a slot over ", g.regions()->size(), " rails; 1 to ", kMaxRails, " are possible"));
    for (flatbuffers::uoffset_t i = 0; i < g.regions()->size(); ++i) {
        const auto r = struct_at(*g.regions(), i);
        out.regions.push_back({r.address(), r.key(), r.bytes()});
    }
    return out;
}

}  // namespace lynx
