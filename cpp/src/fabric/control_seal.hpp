// Frames that only the two ends of one connection can read and write: libsodium's secretstream (XChaCha20-Poly1305),
// one for each direction. A frame that was changed, left out, repeated or moved does not open.
#pragma once

#include <sodium.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/control_frame.hpp"
#include "fabric/secret.hpp"
#include "lynx/buffer.hpp"

namespace lynx::fabric {

inline constexpr std::size_t kSealBytes = crypto_secretstream_xchacha20poly1305_ABYTES;
/// The header is sealed by itself: its length is proved before it is believed.
inline constexpr std::size_t kSealedHeaderBytes = kFrameHeaderBytes + kSealBytes;

using SessionKey = Secret<crypto_secretstream_xchacha20poly1305_KEYBYTES>;
/// What the writer of a stream hands to its reader before the first frame; no secret.
using StreamHeader = std::array<std::uint8_t, crypto_secretstream_xchacha20poly1305_HEADERBYTES>;

class Seal {
   public:
    Seal() noexcept = default;
    Seal(const Seal&) = delete;
    Seal& operator=(const Seal&) = delete;
    ~Seal();

    [[nodiscard]] StreamHeader start_sealing(const SessionKey& key);
    void start_opening(const SessionKey& key, const StreamHeader& from_peer);

    /// A whole frame as it travels: the sealed header, then the sealed payload if there is any.
    [[nodiscard]] std::vector<std::byte> seal(std::uint8_t type, ConstByteSpan payload);
    /// Its two halves, in this order. Throw AuthenticationFailed, naming `peer`; nothing opens after that.
    [[nodiscard]] FrameHeader open_header(std::span<const std::byte, kSealedHeaderBytes> sealed,
                                          std::size_t max_payload, const std::string& peer);
    [[nodiscard]] std::vector<std::byte> open_payload(ConstByteSpan sealed, const std::string& peer);

   private:
    void open(ConstByteSpan sealed, std::byte* to, const std::string& peer);

    crypto_secretstream_xchacha20poly1305_state sealing_{};
    crypto_secretstream_xchacha20poly1305_state opening_{};
};

/// The size of a payload of so many bytes as it travels.
[[nodiscard]] constexpr std::size_t sealed_bytes(std::size_t payload_bytes) noexcept {
    return payload_bytes == 0 ? 0 : payload_bytes + kSealBytes;
}

}  // namespace lynx::fabric
