// The handshake and the seal, byte by byte, without a socket.
#include "fabric/control_handshake.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "lynx/error.hpp"

namespace lynx::fabric {
namespace {

using Bytes = std::vector<std::byte>;

PresharedKey key(int number = 1) {
    return PresharedKey::from_bytes(Bytes(PresharedKey::kMinBytes, static_cast<std::byte>(number)));
}

Bytes bytes_of(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

/// Hands over all of it, in steps of what is lacking.
void give(Handshake& to, ConstByteSpan bytes) {
    while (!bytes.empty() && !to.done()) {
        const std::size_t step = std::min(to.lacks(), bytes.size());
        to.take(bytes.first(step));
        bytes = bytes.subspan(step);
    }
}

/// Both ends, and the four frames between them: frame 0 and 2 are those of the connecting side.
struct Ends {
    explicit Ends(const PresharedKey& connecting_key = key(), const PresharedKey& listening_key = key())
        : connecting(Role::kConnecting, connecting_key, "the listener"),
          listening(Role::kListening, listening_key, "the connector") {}

    /// `change` sees each frame on its way.
    void run(const std::function<void(std::size_t, Bytes&)>& change = [](std::size_t, Bytes&) {}) {
        for (std::size_t frame = 0; frame < 4; ++frame) {
            Bytes bytes = (frame % 2 == 0 ? connecting : listening).output();
            frames.push_back(bytes);
            change(frame, bytes);
            give(frame % 2 == 0 ? listening : connecting, bytes);
        }
    }

    Handshake connecting;
    Handshake listening;
    std::vector<Bytes> frames;
};

bool contains(ConstByteSpan all, ConstByteSpan part) {
    return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

struct Sealed {
    Sealed() {
        ends.run();
        here = ends.connecting.seal();
        there = ends.listening.seal();
    }
    Ends ends;
    std::unique_ptr<Seal> here;
    std::unique_ptr<Seal> there;
};

/// What the other end reads of a whole frame.
ControlMessage opened(Seal& by, const Bytes& frame) {
    const auto header =
        by.open_header(std::span(frame).first<kSealedHeaderBytes>(), kMaxControlPayload, "the other end");
    return {header.type, by.open_payload(std::span(frame).subspan(kSealedHeaderBytes), "the other end")};
}

TEST(Handshake, OfTheSameKeyEndsInSealsThatFitEachOther) {
    Sealed sealed;
    EXPECT_TRUE(sealed.ends.connecting.done());
    EXPECT_TRUE(sealed.ends.listening.done());
    for (const auto& [from, to] :
         {std::pair{sealed.here.get(), sealed.there.get()}, std::pair{sealed.there.get(), sealed.here.get()}}) {
        for (const std::string text : {"", "a secret", "a secret"}) {
            const Bytes frame = from->seal(7, bytes_of(text));
            EXPECT_FALSE(!text.empty() && contains(frame, bytes_of(text)));
            const ControlMessage message = opened(*to, frame);
            EXPECT_EQ(message.type, 7);
            EXPECT_EQ(message.payload, bytes_of(text));
        }
    }
}

TEST(Handshake, SaysNothingTwiceAndNothingOfTheKey) {
    Ends first;
    Ends second;
    first.run();
    second.run();
    for (std::size_t frame = 0; frame < 4; ++frame) {
        const auto payload_of = [](const Bytes& f) { return ConstByteSpan(f).subspan(kFrameHeaderBytes); };
        EXPECT_FALSE(contains(second.frames[frame], payload_of(first.frames[frame]).first(24)));
        EXPECT_FALSE(contains(first.frames[frame], Bytes(8, std::byte{1})));
    }
}

TEST(Handshake, TakesItsBytesInPiecesOfAnySize) {
    Ends ends;
    for (std::size_t frame = 0; frame < 4; ++frame) {
        Handshake& to = frame % 2 == 0 ? ends.listening : ends.connecting;
        for (const std::byte b : (frame % 2 == 0 ? ends.connecting : ends.listening).output()) to.take({&b, 1});
    }
    EXPECT_TRUE(ends.connecting.done() && ends.listening.done());
}

TEST(Handshake, OfAnotherKeyFailsAtTheListenerWhichTellsTheOther) {
    Ends ends(key(1), key(2));
    EXPECT_THROW(ends.run(), AuthenticationFailed);
    EXPECT_EQ(ends.frames.size(), 3u) << "the listener has proved something to a stranger";
    try {
        give(ends.connecting, ends.listening.output());
        FAIL() << "the connecting side took a refusal for a proof";
    } catch (const AuthenticationFailed& e) {
        EXPECT_NE(std::string(e.what()).find("another pre-shared key"), std::string::npos) << e.what();
    }
}

TEST(Handshake, FailsWhateverBitOfItIsChanged) {
    const std::size_t sizes[] = {76, 76, 68, 68};
    for (std::size_t frame = 0; frame < 4; ++frame) {
        for (std::size_t at = 0; at < sizes[frame]; ++at) {
            Ends ends;
            try {
                ends.run([&](std::size_t now, Bytes& bytes) {
                    ASSERT_EQ(bytes.size(), sizes[now]);
                    if (now == frame) bytes[at] ^= static_cast<std::byte>(1u << at % 8);
                });
                // The top bit of a public key is none of X25519's; but all that was said is under the MAC.
                ADD_FAILURE() << "byte " << at << " of frame " << frame << " was changed, and nobody noticed";
            } catch (const AuthenticationFailed&) {
            } catch (const ProtocolError&) {
            }
        }
    }
}

TEST(Handshake, WithRecordedBytesOfAnEarlierOneFails) {
    Ends earlier;
    earlier.run();
    Ends later;
    EXPECT_THROW(later.run([&](std::size_t frame, Bytes& bytes) {
        if (frame % 2 == 0) bytes = earlier.frames[frame];
    }),
                 AuthenticationFailed);
    Ends other;
    EXPECT_THROW(other.run([&](std::size_t frame, Bytes& bytes) {
        if (frame % 2 == 1) bytes = earlier.frames[frame];
    }),
                 AuthenticationFailed);
}

TEST(Handshake, WithItsOwnChallengeOrProofSentBackFails) {
    Handshake connecting(Role::kConnecting, key(), "a mirror");
    const Bytes challenge = connecting.output();
    EXPECT_THROW(give(connecting, challenge), AuthenticationFailed);

    Ends ends;
    EXPECT_THROW(ends.run([&](std::size_t frame, Bytes& bytes) {
        if (frame == 3) bytes = ends.frames[2];
    }),
                 AuthenticationFailed);
}

TEST(Handshake, WithAPublicKeyThatIsNoneFails) {
    for (const std::uint8_t first : {0, 1}) {  // points of small order: whoever sends one knows the session's keys
        Handshake listening(Role::kListening, key(), "a stranger");
        Challenge challenge;
        challenge.nonce.fill(7);
        challenge.public_key[0] = first;
        FrameBytes header = FrameHeader{.kind = FrameKind::kChallenge, .payload_bytes = sizeof challenge}.pack();
        give(listening, std::as_bytes(std::span(header)));
        EXPECT_THROW(give(listening, std::as_bytes(std::span(&challenge, 1))), AuthenticationFailed);
    }
}

TEST(Handshake, BelievesNoLengthThatIsNotItsOwn) {
    for (const std::uint32_t bytes : {0u, 63u, 65u, 4096u, 4097u, 0xffffffffu}) {
        Handshake listening(Role::kListening, key(), "a stranger");
        const FrameBytes header = FrameHeader{.kind = FrameKind::kChallenge, .payload_bytes = bytes}.pack();
        EXPECT_THROW(give(listening, std::as_bytes(std::span(header))), ProtocolError);
    }
}

TEST(Seal, OpensNothingOfWhichABitWasChanged) {
    for (std::size_t at = 0;; ++at) {
        Sealed sealed;
        Bytes frame = sealed.here->seal(1, bytes_of("hello"));
        if (at == frame.size()) break;
        frame[at] ^= std::byte{4};
        EXPECT_THROW((void)opened(*sealed.there, frame), AuthenticationFailed) << "byte " << at;
    }
}

TEST(Seal, OpensNothingOutOfOrderTwiceOrFromTheOtherDirection) {
    Sealed sealed;
    const Bytes first = sealed.here->seal(1, bytes_of("first"));
    const Bytes second = sealed.here->seal(1, bytes_of("second"));
    const Bytes of_there = sealed.there->seal(1, bytes_of("first"));
    EXPECT_THROW((void)opened(*sealed.there, second), AuthenticationFailed);
    EXPECT_THROW((void)opened(*sealed.there, of_there), AuthenticationFailed);
    EXPECT_EQ(opened(*sealed.there, first).payload, bytes_of("first"));
    EXPECT_THROW((void)opened(*sealed.there, first), AuthenticationFailed);
    EXPECT_EQ(opened(*sealed.there, second).payload, bytes_of("second"));
}

}  // namespace
}  // namespace lynx::fabric
