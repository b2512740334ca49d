#include "fabric/control_handshake.hpp"

#include <algorithm>
#include <cstring>

#include "core/text.hpp"
#include "fabric/preshared_key_impl.hpp"
#include "lynx/error.hpp"

namespace lynx::fabric {

namespace {

/// What the MAC is computed over.
struct Transcript {
    std::array<std::uint8_t, 14> what = {'l', 'y', 'n', 'x', ' ', 'h', 'a', 'n', 'd', 's', 'h', 'a', 'k', 'e'};
    std::uint8_t version = kControlVersion;
    Role prover = Role::kConnecting;
    Challenge connecting;
    Challenge listening;
    StreamHeader stream_header{};
};
static_assert(sizeof(Transcript) == 16 + 2 * sizeof(Challenge) + sizeof(StreamHeader), "bytes alone, no padding");

template <class T>
[[nodiscard]] ConstByteSpan bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

template <class T>
[[nodiscard]] T read(ConstByteSpan bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

}  // namespace

Handshake::Handshake(Role role, const PresharedKey& key, std::string peer)
    : role_(role), key_(key), peer_(std::move(peer)) {
    if (role_ == Role::kConnecting) send_challenge();
}

void Handshake::take(ConstByteSpan bytes) {
    bytes = bytes.first(std::min(bytes.size(), lacks()));
    std::copy(bytes.begin(), bytes.end(), frame_.begin() + static_cast<std::ptrdiff_t>(had_));
    had_ += bytes.size();
    if (lacks() > 0) return;
    if (wanted_ == kFrameHeaderBytes) return on_header();
    const ConstByteSpan payload = std::span(frame_).subspan(kFrameHeaderBytes);
    had_ = 0;
    wanted_ = kFrameHeaderBytes;
    if (due_ == Due::kChallenge)
        on_challenge(read<Challenge>(payload));
    else
        on_proof(read<Proof>(payload));
}

void Handshake::on_header() {
    const FrameHeader header = read_header(read<FrameBytes>(frame_), kMaxStrangerPayload, peer_);
    if (header.kind == FrameKind::kRefusal) throw_refused(header.type, peer_);
    if (header.kind == FrameKind::kMessage) fail("the peer has no pre-shared key", Refusal::kKeyNeeded);
    const bool challenge = due_ == Due::kChallenge;
    const std::size_t bytes = challenge ? sizeof(Challenge) : sizeof(Proof);
    if (header.kind != (challenge ? FrameKind::kChallenge : FrameKind::kProof) || header.type != 0 ||
        header.payload_bytes != bytes)
        throw ProtocolError(text("control connection to ", peer_, ": a ", challenge ? "challenge" : "proof",
                                 " of the handshake was due and something else came; the connection is closed"));
    wanted_ = kFrameHeaderBytes + bytes;
}

void Handshake::on_challenge(const Challenge& theirs) {
    if (theirs == own_) fail("the peer sent this side's own challenge back", Refusal::kWrongKey);
    theirs_ = theirs;
    if (role_ == Role::kListening) send_challenge();
    SessionKey sealing_key;
    const auto session_keys =
        role_ == Role::kConnecting ? crypto_kx_client_session_keys : crypto_kx_server_session_keys;
    if (session_keys(opening_key_.data(), sealing_key.data(), own_.public_key.data(), secret_key_.data(),
                     theirs_.public_key.data()) != 0)
        fail("the peer's challenge has a public key that is none", Refusal::kWrongKey);
    stream_header_ = seal_->start_sealing(sealing_key);
    if (role_ == Role::kConnecting) send_proof();
    due_ = Due::kProof;
}

void Handshake::on_proof(const Proof& theirs) {
    const Role prover = role_ == Role::kConnecting ? Role::kListening : Role::kConnecting;
    const auto expected = mac(prover, theirs.stream_header);
    if (sodium_memcmp(theirs.mac.data(), expected.data(), expected.size()) != 0)
        fail("the peer has not proved that it has the pre-shared key given here", Refusal::kWrongKey);
    seal_->start_opening(opening_key_, theirs.stream_header);
    if (role_ == Role::kListening) send_proof();
    due_ = Due::kNothing;
    wanted_ = 0;
}

std::array<std::uint8_t, crypto_auth_BYTES> Handshake::mac(Role prover, const StreamHeader& header) const {
    const bool connecting = role_ == Role::kConnecting;
    const Transcript transcript{.prover = prover,
                                .connecting = connecting ? own_ : theirs_,
                                .listening = connecting ? theirs_ : own_,
                                .stream_header = header};
    std::array<std::uint8_t, crypto_auth_BYTES> out{};
    crypto_auth(out.data(), reinterpret_cast<const unsigned char*>(&transcript), sizeof transcript,
                key_.impl().mac_key.data());
    return out;
}

void Handshake::send_challenge() {
    randombytes_buf(own_.nonce.data(), own_.nonce.size());
    crypto_kx_keypair(own_.public_key.data(), secret_key_.data());
    put(FrameKind::kChallenge, bytes_of(own_));
}

void Handshake::send_proof() {
    put(FrameKind::kProof, bytes_of(Proof{stream_header_, mac(role_, stream_header_)}));
}

void Handshake::put(FrameKind kind, ConstByteSpan payload, std::uint8_t type) {
    const FrameBytes header =
        FrameHeader{.type = type, .kind = kind, .payload_bytes = static_cast<std::uint32_t>(payload.size())}.pack();
    const ConstByteSpan head = std::as_bytes(std::span(header));
    output_.insert(output_.end(), head.begin(), head.end());
    output_.insert(output_.end(), payload.begin(), payload.end());
}

void Handshake::fail(const std::string& why, Refusal refusal) {
    put(FrameKind::kRefusal, {}, static_cast<std::uint8_t>(refusal));
    throw AuthenticationFailed(text("control connection to ", peer_, ": ", why,
                                    "; give both sides the same key (--key-file). The connection is closed"));
}

}  // namespace lynx::fabric
