// What sender and receiver tell each other of chunks.
#pragma once

#include <cstdint>
#include <vector>

namespace lynx {

/// Chunks whose numbers follow each other.
struct ChunkRun {
    std::uint32_t first = 0;
    std::uint32_t count = 0;

    friend bool operator==(const ChunkRun&, const ChunkRun&) = default;
};

/// What a sender has posted, if it cannot say: some of it may land yet.
inline constexpr std::uint64_t kUnknownChunks = ~std::uint64_t{0};

/// What a receiver asks for again, and for the how-manieth time that it asks: what the sender said before it had heard
/// of that round counts for nothing.
struct Missing {
    std::vector<ChunkRun> runs;
    std::uint32_t round = 0;
};

/// All chunks of the first `parts` parts have been written, those of round `round` included.
struct Written {
    unsigned parts = 0;
    std::uint32_t round = 0;

    friend bool operator==(const Written&, const Written&) = default;
};

}  // namespace lynx
