// Shards as they travel, in manifests and in layouts.
#pragma once

#include <vector>

#include "lynx/manifest.hpp"
#include "manifest_generated.h"

namespace lynx {

[[nodiscard]] inline auto wire_shards(flatbuffers::FlatBufferBuilder& builder, const std::vector<Shard>& shards) {
    std::vector<wire::Shard> out;
    out.reserve(shards.size());
    for (const Shard& s : shards) out.emplace_back(s.first_layer, s.layers, s.first_head, s.heads);
    return builder.CreateVectorOfStructs(out);
}

[[nodiscard]] inline std::vector<Shard> shards_of(const flatbuffers::Vector<const wire::Shard*>& shards) {
    std::vector<Shard> out;
    out.reserve(shards.size());
    for (const wire::Shard* s : shards) out.push_back({s->first_layer(), s->layers(), s->first_head(), s->heads()});
    return out;
}

}  // namespace lynx
