// Who owns which heads of each layer.
#pragma once

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "core/text.hpp"
#include "lynx/shards.hpp"

namespace lynx {

struct HeadRange {
    std::uint32_t first = 0;
    std::uint32_t heads = 0;
    std::uint32_t rank = 0;

    [[nodiscard]] std::uint32_t end() const noexcept { return first + heads; }
    [[nodiscard]] bool same_heads(const HeadRange& other) const noexcept {
        return first == other.first && heads == other.heads;
    }
};

/// By head, then rank. `layout` has shards within its layers.
[[nodiscard]] inline std::vector<std::vector<HeadRange>> ranges_by_layer(const ShardLayout& layout) {
    std::vector<std::vector<HeadRange>> layers(layout.layers.size());
    for (std::uint32_t rank = 0; rank < layout.ranks.size(); ++rank)
        for (const Shard& s : layout.ranks[rank])
            for (std::uint32_t i = 0; i < s.layers; ++i)
                layers[s.first_layer + i].push_back({s.first_head, s.heads, rank});
    for (auto& ranges : layers)
        std::sort(ranges.begin(), ranges.end(), [](const HeadRange& a, const HeadRange& b) {
            return std::tuple(a.first, a.heads, a.rank) < std::tuple(b.first, b.heads, b.rank);
        });
    return layers;
}

/// "head 3" or "heads 2 to 5".
[[nodiscard]] inline std::string heads_text(std::uint32_t first, std::uint32_t heads) {
    return heads == 1 ? text("head ", first) : text("heads ", first, " to ", first + heads - 1);
}

}  // namespace lynx
