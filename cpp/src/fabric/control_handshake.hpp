// How two ends prove to each other that they have the same pre-shared key, without a word of it on the wire, and agree
// on keys for this one connection that are gone when it ends (docs/wire-format.md). A parser of spans: no socket here.
//
//   connecting -> listening   challenge
//   listening -> connecting   challenge
//   connecting -> listening   proof       first, so that a stranger gets nothing that was made with the key
//   listening -> connecting   proof
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/control_frame.hpp"
#include "fabric/control_seal.hpp"
#include "lynx/preshared_key.hpp"

namespace lynx::fabric {

enum class Role : std::uint8_t { kConnecting = 1, kListening = 2 };

/// The payload of a challenge frame, fresh for each connection.
struct Challenge {
    std::array<std::uint8_t, 32> nonce{};
    std::array<std::uint8_t, crypto_kx_PUBLICKEYBYTES> public_key{};

    bool operator==(const Challenge&) const = default;
};

/// The payload of a proof frame.
struct Proof {
    StreamHeader stream_header{};
    std::array<std::uint8_t, crypto_auth_BYTES> mac{};
};

static_assert(sizeof(Challenge) == 64 && sizeof(Proof) == 56, "bytes alone: both travel as they are");

class Handshake {
   public:
    /// `peer` is for messages.
    Handshake(Role role, const PresharedKey& key, std::string peer);

    /// How many bytes the frame that is due still lacks. No more may be taken: what follows may be sealed already.
    [[nodiscard]] std::size_t lacks() const noexcept { return wanted_ - had_; }
    /// Up to lacks() bytes of the peer. Throws AuthenticationFailed or ProtocolError, maybe with a refusal in output();
    /// the handshake is over then.
    void take(ConstByteSpan bytes);
    /// What is to be sent now; each byte is given once.
    [[nodiscard]] std::vector<std::byte> output() noexcept { return std::exchange(output_, {}); }
    [[nodiscard]] bool done() const noexcept { return due_ == Due::kNothing; }
    /// Has the peer's challenge come?
    [[nodiscard]] bool challenged() const noexcept { return due_ != Due::kChallenge; }
    /// Once done.
    [[nodiscard]] std::unique_ptr<Seal> seal() noexcept { return std::move(seal_); }

   private:
    enum class Due : std::uint8_t { kChallenge, kProof, kNothing };

    void on_header();
    void on_challenge(const Challenge& theirs);
    void on_proof(const Proof& theirs);
    /// The keyed MAC over all that the two ends have said to each other, and by which of them it is.
    [[nodiscard]] std::array<std::uint8_t, crypto_auth_BYTES> mac(Role prover, const StreamHeader& header) const;
    void send_challenge();
    void send_proof();
    void put(FrameKind kind, ConstByteSpan payload, std::uint8_t type = 0);
    [[noreturn]] void fail(const std::string& why, Refusal refusal) noexcept(false);

    const Role role_;
    const PresharedKey key_;
    const std::string peer_;
    Due due_ = Due::kChallenge;
    std::array<std::byte, kFrameHeaderBytes + sizeof(Challenge)> frame_{};
    std::size_t had_ = 0;
    std::size_t wanted_ = kFrameHeaderBytes;
    std::vector<std::byte> output_;

    Secret<crypto_kx_SECRETKEYBYTES> secret_key_;
    Challenge own_;
    Challenge theirs_;
    SessionKey opening_key_;
    StreamHeader stream_header_{};  // of what this end seals
    std::unique_ptr<Seal> seal_ = std::make_unique<Seal>();
};

}  // namespace lynx::fabric
