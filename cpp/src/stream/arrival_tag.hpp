// The 32 bits that travel with each write: which chunk of which slot it is.
#pragma once

#include <cstdint>

namespace lynx {

struct ArrivalTag {
    static constexpr unsigned kSlotBits = 10;
    static constexpr unsigned kChunkBits = 22;
    static constexpr std::uint32_t kMaxSlots = 1u << kSlotBits;
    static constexpr std::uint32_t kMaxChunks = 1u << kChunkBits;

    std::uint32_t slot = 0;
    std::uint32_t chunk = 0;  ///< as SlotLayout numbers them

    [[nodiscard]] constexpr std::uint32_t pack() const noexcept { return slot << kChunkBits | chunk; }

    [[nodiscard]] static constexpr ArrivalTag unpack(std::uint32_t tag) noexcept {
        return {tag >> kChunkBits, tag & (kMaxChunks - 1)};
    }
};

static_assert(ArrivalTag::unpack(ArrivalTag{9, 300}.pack()).slot == 9);
static_assert(ArrivalTag::unpack(ArrivalTag{9, 300}.pack()).chunk == 300);
static_assert(ArrivalTag{1023, (1u << 22) - 1}.pack() == 0xFFFFFFFF);

}  // namespace lynx
