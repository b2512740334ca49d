// The header of a control frame, in its one home.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lynx/buffer.hpp"
#include "lynx/control.hpp"

namespace lynx::fabric {

inline constexpr std::size_t kFrameHeaderBytes = 12;
using FrameBytes = std::array<std::uint8_t, kFrameHeaderBytes>;

enum class FrameKind : std::uint8_t {
    kMessage = 0,
    kChallenge = 1,  // handshake: a nonce and a public key
    kProof = 2,      // handshake: what only who has the key can compute
    kRefusal = 3,    // the type is a Refusal; the connection is at its end
};

/// Why a connection ends before a message has come.
enum class Refusal : std::uint8_t { kKeyNeeded = 1, kNoKeyHere = 2, kWrongKey = 3 };

/// magic "LYNX", u8 version, u8 type, u8 kind, u8 zero, u32 payload bytes; little endian.
struct FrameHeader {
    static constexpr std::array<std::uint8_t, 4> kMagic = {'L', 'Y', 'N', 'X'};

    std::array<std::uint8_t, 4> magic = kMagic;
    std::uint8_t version = kControlVersion;
    std::uint8_t type = 0;
    FrameKind kind = FrameKind::kMessage;
    std::uint8_t zero = 0;
    std::uint32_t payload_bytes = 0;

    [[nodiscard]] constexpr FrameBytes pack() const {
        FrameBytes out{magic[0], magic[1], magic[2], magic[3], version, type, static_cast<std::uint8_t>(kind), zero};
        for (std::size_t i = 0; i < 4; ++i) out[8 + i] = static_cast<std::uint8_t>(payload_bytes >> (8 * i));
        return out;
    }

    [[nodiscard]] static constexpr FrameHeader unpack(const FrameBytes& in) {
        FrameHeader header;
        header.magic = {in[0], in[1], in[2], in[3]};
        header.version = in[4];
        header.type = in[5];
        header.kind = static_cast<FrameKind>(in[6]);
        header.zero = in[7];
        for (std::size_t i = 4; i-- > 0;) header.payload_bytes = (header.payload_bytes << 8) | in[8 + i];
        return header;
    }
};

static_assert(FrameHeader{.type = 9, .payload_bytes = 0x01020304}.pack()[8] == 4);
static_assert(FrameHeader::unpack(FrameHeader{.type = 9, .payload_bytes = 70000}.pack()).payload_bytes == 70000);
static_assert(FrameHeader::unpack(FrameHeader{.kind = FrameKind::kProof}.pack()).kind == FrameKind::kProof);

/// A header that `peer` has sent, nothing of it believed yet. Throws ProtocolError: no Lynx, another version, an
/// unknown kind, a payload above the limit.
[[nodiscard]] FrameHeader read_header(const FrameBytes& bytes, std::size_t max_payload, const std::string& peer);

/// What a Refusal by `peer` means, thrown as AuthenticationFailed.
[[noreturn]] void throw_refused(std::uint8_t refusal, const std::string& peer);

}  // namespace lynx::fabric
