// Chunks of a slot whose numbers follow each other.
#pragma once

#include <cstdint>

namespace lynx {

struct ChunkRun {
    std::uint32_t first = 0;
    std::uint32_t count = 0;

    friend bool operator==(const ChunkRun&, const ChunkRun&) = default;
};

}  // namespace lynx
