// The 32 bits that travel with each write: which chunk of which slot it is, and whether an earlier write of the same
// transfer may land later than this one.
#pragma once

#include <cstdint>

namespace lynx {

struct ArrivalTag {
    static constexpr unsigned kSlotBits = 10;
    static constexpr unsigned kChunkBits = 21;
    static constexpr std::uint32_t kMaxSlots = 1u << kSlotBits;
    static constexpr std::uint32_t kMaxChunks = 1u << kChunkBits;

    std::uint32_t slot = 0;
    std::uint32_t chunk = 0;   ///< as SlotLayout numbers them
    bool after_doubt = false;  ///< the sender has given up a write of this transfer that may land yet

    [[nodiscard]] constexpr std::uint32_t pack() const noexcept {
        return slot << (kChunkBits + 1) | (after_doubt ? kMaxChunks : 0) | chunk;
    }

    [[nodiscard]] static constexpr ArrivalTag unpack(std::uint32_t tag) noexcept {
        return {tag >> (kChunkBits + 1), tag & (kMaxChunks - 1), (tag & kMaxChunks) != 0};
    }
};

static_assert(ArrivalTag::unpack(ArrivalTag{9, 300}.pack()).slot == 9);
static_assert(ArrivalTag::unpack(ArrivalTag{9, 300}.pack()).chunk == 300);
static_assert(!ArrivalTag::unpack(ArrivalTag{9, 300}.pack()).after_doubt);
static_assert(ArrivalTag{1023, (1u << 21) - 1, true}.pack() == 0xFFFFFFFF);

}  // namespace lynx
