// The 32 bits that travel with each write: which part of which tensor of which slot it belongs to.
#pragma once

#include <cstdint>

namespace lynx {

struct ArrivalTag {
    static constexpr unsigned kSlotBits = 10;
    static constexpr unsigned kTensorBits = 14;
    static constexpr unsigned kPartBits = 4;
    static constexpr std::uint32_t kMaxSlots = 1u << kSlotBits;

    std::uint32_t slot = 0;
    std::uint32_t tensor = 0;
    std::uint32_t part = 0;

    [[nodiscard]] constexpr std::uint32_t pack() const noexcept {
        return slot << (kTensorBits + kPartBits) | tensor << kPartBits | part;
    }

    [[nodiscard]] static constexpr ArrivalTag unpack(std::uint32_t tag) noexcept {
        return {tag >> (kTensorBits + kPartBits), tag >> kPartBits & ((1u << kTensorBits) - 1),
                tag & ((1u << kPartBits) - 1)};
    }
};

static_assert(ArrivalTag::unpack(ArrivalTag{9, 300, 3}.pack()).slot == 9);
static_assert(ArrivalTag::unpack(ArrivalTag{9, 300, 3}.pack()).tensor == 300);
static_assert(ArrivalTag::unpack(ArrivalTag{1023, 16383, 15}.pack()).part == 15);
static_assert(ArrivalTag{1023, 16383, 15}.pack() == 0x0FFFFFFF, "the top four bits stay free");

}  // namespace lynx
