// The header of a control frame, in its one home.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "lynx/control.hpp"

namespace lynx::fabric {

inline constexpr std::size_t kFrameHeaderBytes = 12;
using FrameBytes = std::array<std::uint8_t, kFrameHeaderBytes>;

/// magic "LYNX", u8 version, u8 type, u16 zero, u32 payload bytes; little endian.
struct FrameHeader {
    static constexpr std::array<std::uint8_t, 4> kMagic = {'L', 'Y', 'N', 'X'};

    std::array<std::uint8_t, 4> magic = kMagic;
    std::uint8_t version = kControlVersion;
    std::uint8_t type = 0;
    std::uint16_t zero = 0;
    std::uint32_t payload_bytes = 0;

    [[nodiscard]] constexpr FrameBytes pack() const {
        FrameBytes out{magic[0], magic[1], magic[2], magic[3], version, type};
        for (std::size_t i = 0; i < 2; ++i) out[6 + i] = static_cast<std::uint8_t>(zero >> (8 * i));
        for (std::size_t i = 0; i < 4; ++i) out[8 + i] = static_cast<std::uint8_t>(payload_bytes >> (8 * i));
        return out;
    }

    [[nodiscard]] static constexpr FrameHeader unpack(const FrameBytes& in) {
        FrameHeader header;
        header.magic = {in[0], in[1], in[2], in[3]};
        header.version = in[4];
        header.type = in[5];
        header.zero = static_cast<std::uint16_t>(in[6] | (in[7] << 8));
        for (std::size_t i = 4; i-- > 0;) header.payload_bytes = (header.payload_bytes << 8) | in[8 + i];
        return header;
    }
};

static_assert(FrameHeader{.type = 9, .payload_bytes = 0x01020304}.pack()[8] == 4);
static_assert(FrameHeader::unpack(FrameHeader{.type = 9, .payload_bytes = 70000}.pack()).payload_bytes == 70000);

}  // namespace lynx::fabric
