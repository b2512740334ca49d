#include "fabric/control_seal.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx::fabric {

namespace {

unsigned char* raw(std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

Seal::~Seal() {
    sodium_memzero(&sealing_, sizeof sealing_);
    sodium_memzero(&opening_, sizeof opening_);
}

StreamHeader Seal::start_sealing(const SessionKey& key) {
    StreamHeader header{};
    crypto_secretstream_xchacha20poly1305_init_push(&sealing_, header.data(), key.data());
    return header;
}

void Seal::start_opening(const SessionKey& key, const StreamHeader& from_peer) {
    crypto_secretstream_xchacha20poly1305_init_pull(&opening_, from_peer.data(), key.data());
}

std::vector<std::byte> Seal::seal(std::uint8_t type, ConstByteSpan payload) {
    const FrameBytes header =
        FrameHeader{.type = type, .payload_bytes = static_cast<std::uint32_t>(payload.size())}.pack();
    std::vector<std::byte> frame(kSealedHeaderBytes + sealed_bytes(payload.size()));
    const auto push = [this](std::byte* to, const unsigned char* from, std::size_t bytes) {
        crypto_secretstream_xchacha20poly1305_push(&sealing_, raw(to), nullptr, from, bytes, nullptr, 0, 0);
    };
    push(frame.data(), header.data(), header.size());
    if (!payload.empty()) push(frame.data() + kSealedHeaderBytes, raw(payload.data()), payload.size());
    return frame;
}

FrameHeader Seal::open_header(std::span<const std::byte, kSealedHeaderBytes> sealed, std::size_t max_payload,
                              const std::string& peer) {
    FrameBytes header{};
    open(sealed, std::as_writable_bytes(std::span(header)).data(), peer);
    return read_header(header, max_payload, peer);
}

std::vector<std::byte> Seal::open_payload(ConstByteSpan sealed, const std::string& peer) {
    std::vector<std::byte> payload(sealed.size() - std::min(sealed.size(), kSealBytes));
    if (!sealed.empty()) open(sealed, payload.data(), peer);
    return payload;
}

void Seal::open(ConstByteSpan sealed, std::byte* to, const std::string& peer) {
    if (sealed.size() < kSealBytes ||
        crypto_secretstream_xchacha20poly1305_pull(&opening_, raw(to), nullptr, nullptr, raw(sealed.data()),
                                                   sealed.size(), nullptr, 0) != 0)
        throw AuthenticationFailed(text("control connection to ", peer,
                                        ": a message does not bear the peer's seal: it was damaged, repeated or put in "
                                        "on the way; the connection is closed"));
}

}  // namespace lynx::fabric
