#include "lynx/manifest.hpp"

#include <algorithm>
#include <set>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "manifest_generated.h"
#include "stream/flatbuffer.hpp"

namespace lynx {

namespace {

constexpr std::size_t kMaxModelName = 1024;

void check(bool ok, std::string_view field, std::uint64_t value, std::string_view range) {
    if (!ok) throw InvalidArgument(text("manifest: ", field, " is ", value, "; it has to be ", range));
}

}  // namespace

void Manifest::validate() const {
    check(model.size() <= kMaxModelName, "the length of model", model.size(), "at most 1024");
    check(parts >= 1 && parts <= 2, "parts", parts, "1 (anchors) or 2 (with residuals)");
    check(chunk_bytes >= kMinChunkBytes && chunk_bytes <= kMaxChunkBytes, "chunk_bytes", chunk_bytes,
          "4 KiB to 64 MiB");
    check(!tensors.empty() && tensors.size() <= kMaxTensors, "the number of tensors", tensors.size(), "1 to 16384");
    std::set<std::pair<std::uint32_t, TensorRole>> seen;
    std::uint64_t total = 0;
    for (const ManifestTensor& t : tensors) {
        check(t.role <= TensorRole::kValue, "role", static_cast<unsigned>(t.role), "0 (key) or 1 (value)");
        check(seen.emplace(t.layer, t.role).second, "a repeated layer", t.layer, "given once for each role");
        if (t.spec.exact)
            throw InvalidArgument(text("manifest: the tensor of layer ", t.layer,
                                       " has an exact tier, and this version ",
                                       "carries none: it streams what TensorSpec.exact = false lays out"));
        total += PlaneLayout(t.spec).bytes();  // bounded by its own limits, so that the sum cannot wrap
        check(total <= kMaxTransferBytes, "the total size", total, "at most 2^44 bytes");
    }
}

std::vector<std::byte> Manifest::serialize() const {
    validate();
    flatbuffers::FlatBufferBuilder b(1024);
    std::vector<flatbuffers::Offset<wire::Tensor>> offsets;
    offsets.reserve(tensors.size());
    for (const ManifestTensor& t : tensors)
        offsets.push_back(wire::CreateTensor(b, t.layer, static_cast<std::uint8_t>(t.role),
                                             static_cast<std::uint8_t>(t.spec.coding),
                                             static_cast<std::uint8_t>(t.spec.dtype), t.spec.anchor_bits, t.spec.heads,
                                             t.spec.tokens, t.spec.head_dim, t.spec.sink_tokens));
    b.Finish(wire::CreateManifest(b, kManifestVersion, request_id, b.CreateString(model), context_tokens, first_token,
                                  parts, chunk_bytes, b.CreateVector(offsets)));
    return bytes_of(b);
}

Manifest Manifest::parse(ConstByteSpan bytes) {
    const auto& m = verified_root<wire::Manifest>(bytes, "manifest");
    check_version(m.version(), kManifestVersion, "manifest");
    Manifest out{m.request_id(), m.model()->str(), m.context_tokens(), m.first_token(), m.parts(), m.chunk_bytes(), {}};
    try {
        check(m.tensors()->size() <= kMaxTensors, "the number of tensors", m.tensors()->size(), "1 to 16384");
        out.tensors.reserve(m.tensors()->size());
        for (const wire::Tensor* t : *m.tensors())
            out.tensors.push_back({t->layer(),
                                   static_cast<TensorRole>(t->role()),
                                   {static_cast<Coding>(t->coding()), static_cast<DType>(t->dtype()), t->heads(),
                                    t->tokens(), t->head_dim(), t->anchor_bits(), t->sink_tokens()}});
        out.validate();
    } catch (const InvalidArgument& e) {
        throw ProtocolError(text("the peer's manifest was refused: ", e.what()));
    }
    return out;
}

std::vector<std::byte> Grant::serialize() const {
    flatbuffers::FlatBufferBuilder b(128);
    b.Finish(wire::CreateGrant(b, kManifestVersion, request_id, slot, region.address, region.key, region.bytes,
                               bytes_per_second));
    return bytes_of(b);
}

Grant Grant::parse(ConstByteSpan bytes) {
    const auto& g = verified_root<wire::Grant>(bytes, "grant");
    check_version(g.version(), kManifestVersion, "grant");
    return {g.request_id(), g.slot(), {g.address(), g.key(), g.bytes()}, g.bytes_per_second()};
}

}  // namespace lynx
