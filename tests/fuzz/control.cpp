// What a stranger sends over a control connection: frames, handshakes, sealed frames.
#include <algorithm>
#include <memory>

#include "fabric/control_handshake.hpp"
#include "fuzz/input.hpp"
#include "fuzz/targets.hpp"
#include "lynx/error.hpp"

namespace lynx::fuzz {
namespace {

using fabric::FrameBytes;
using fabric::FrameHeader;
using fabric::FrameKind;
using fabric::Handshake;
using fabric::Role;

constexpr const char* kPeer = "a stranger";

[[nodiscard]] const PresharedKey& key() {
    static const PresharedKey one =
        PresharedKey::from_bytes(std::vector<std::byte>(PresharedKey::kMinBytes, std::byte{1}));
    return one;
}

/// A header that was accepted says what it says, and claims no more than it may.
void read_frame(Input& in) {
    FrameBytes bytes{};
    in.fill(std::as_writable_bytes(std::span(bytes)));
    const std::size_t most = in.one_in(2) ? kMaxControlPayload : kMaxStrangerPayload;
    const FrameHeader header = fabric::read_header(bytes, most, kPeer);
    require(header.payload_bytes <= most, "a header claims more than it may");
    require(header.pack() == bytes, "a header does not come back as it was sent");
    if (header.kind == FrameKind::kRefusal) fabric::throw_refused(header.type, kPeer);
}

/// Whatever a stranger says, in whatever pieces, no handshake ends with its being a peer, and none takes memory for it.
void shake_hands(Input& in, Role role) {
    Handshake handshake(role, key(), kPeer);
    std::size_t said = handshake.output().size();
    ConstByteSpan rest = in.rest();
    const std::size_t piece = 1 + rest.size() % 97;
    while (!rest.empty()) {
        const std::size_t step = std::min({rest.size(), handshake.lacks(), piece});
        const std::vector<std::byte> bytes(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(step));
        rest = rest.subspan(step);
        handshake.take(bytes);
        said += handshake.output().size();
        require(!handshake.done(), "a stranger without the key has authenticated");
        require(handshake.lacks() > 0, "a handshake that is not done lacks nothing");
        require(said <= 4 * (fabric::kFrameHeaderBytes + sizeof(fabric::Challenge)), "a handshake talks too much");
    }
}

/// A session's reader, which knows its keys, opens nothing that was not sealed by its peer.
void open_sealed(Input& in) {
    struct Session {
        Session() {
            Handshake connecting(Role::kConnecting, key(), kPeer);
            Handshake listening(Role::kListening, key(), kPeer);
            for (Handshake *from = &connecting, *to = &listening; !connecting.done(); std::swap(from, to)) {
                const std::vector<std::byte> bytes = from->output();
                for (std::size_t at = 0, step = 0; at < bytes.size(); at += step) {
                    step = std::min(to->lacks(), bytes.size() - at);
                    to->take(std::span(bytes).subspan(at, step));
                }
            }
            seal = listening.seal();
        }
        std::unique_ptr<fabric::Seal> seal;
    };
    static const Session session;  // what does not open leaves it as it was
    const bool payload = in.one_in(2);
    const std::vector<std::byte> bytes(in.rest().begin(), in.rest().end());
    if (payload || bytes.size() < fabric::kSealedHeaderBytes) {
        if (!bytes.empty())
            (void)session.seal->open_payload(bytes, kPeer);
        else
            return;
    } else {
        (void)session.seal->open_header(std::span(bytes).first<fabric::kSealedHeaderBytes>(), kMaxControlPayload,
                                        kPeer);
    }
    throw Finding("bytes of a stranger were taken for sealed ones");
}

[[nodiscard]] std::vector<std::byte> seed(unsigned kind, FrameHeader header) {
    const FrameBytes frame = header.pack();
    std::vector<std::byte> bytes(1 + frame.size() + header.payload_bytes, std::byte{9});
    bytes[0] = static_cast<std::byte>(kind);
    std::copy_n(std::as_bytes(std::span(frame)).begin(), frame.size(), bytes.begin() + 1);
    return bytes;
}

}  // namespace

void control(ConstByteSpan input) {
    Input in(input);
    const unsigned kind = in.between(0, 7);
    try {
        switch (kind) {
            case 0: return shake_hands(in, Role::kConnecting);
            case 1:
            case 2:
            case 3: return shake_hands(in, Role::kListening);
            case 4: return open_sealed(in);
            default: return read_frame(in);
        }
    } catch (const ProtocolError&) {  // the two answers to bytes of a stranger
    } catch (const AuthenticationFailed&) {
    }
}

std::vector<std::vector<std::byte>> control_seeds() {
    std::vector<std::vector<std::byte>> seeds;
    for (const unsigned kind : {0u, 1u, 5u}) {
        seeds.push_back(seed(kind, {.type = 1, .payload_bytes = 5}));
        seeds.push_back(seed(kind, {.type = 2, .kind = FrameKind::kRefusal}));
        seeds.push_back(seed(kind, {.kind = FrameKind::kProof, .payload_bytes = sizeof(fabric::Proof)}));
        seeds.push_back(seed(kind, {.kind = FrameKind::kChallenge, .payload_bytes = sizeof(fabric::Challenge)}));
        // A challenge, and a proof that proves nothing.
        const auto proof = seed(0, {.kind = FrameKind::kProof, .payload_bytes = sizeof(fabric::Proof)});
        seeds.push_back(seeds.back());
        seeds.back().insert(seeds.back().end(), proof.begin() + 1, proof.end());
    }
    seeds.push_back(seed(4, {.payload_bytes = 60}));
    return seeds;
}

}  // namespace lynx::fuzz
