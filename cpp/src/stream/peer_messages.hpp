// The control messages of a peer: types and payloads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lynx/buffer.hpp"
#include "stream/chunk_run.hpp"

namespace lynx {

enum class MessageType : std::uint8_t {
    kHello = 1,      // both, first
    kOffer = 2,      // sender: a Manifest
    kGrant = 3,      // receiver: a Grant
    kRefuse = 4,     // receiver: a Notice, instead of a grant
    kDone = 5,       // receiver: all that was wanted has been read
    kCancel = 6,     // either: a Notice with the reason; from a sender also with what it has posted
    kCancelled = 7,  // the sender's answer to a receiver's kCancel: what it has posted, with nothing more to come
    kUser = 8,       // the embedder's own
    kSent = 16,      // sender: a Sent
    kResend = 17,    // receiver: a Resend

    kFirstToken = 18,  // sender: a FirstToken
};

struct Hello {
    std::string provider;
    std::vector<std::byte> address;

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Hello parse(ConstByteSpan bytes);  // throws ProtocolError
};

inline constexpr std::uint64_t kUnknownChunks = ~std::uint64_t{0};

struct Notice {
    std::uint64_t request_id = 0;
    std::string reason;
    std::uint64_t chunks_posted = 0;

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Notice parse(ConstByteSpan bytes);  // throws ProtocolError
};

/// All chunks of the first `parts` parts have been written.
struct Sent {
    std::uint64_t request_id = 0;
    std::uint8_t parts = 0;

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Sent parse(ConstByteSpan bytes);  // throws ProtocolError
};

/// These chunks are missing or came damaged.
struct Resend {
    std::uint64_t request_id = 0;
    std::vector<ChunkRun> runs;

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Resend parse(ConstByteSpan bytes);  // throws ProtocolError
};

/// The token that prefill sampled, which the manifest did not have yet.
struct FirstToken {
    std::uint64_t request_id = 0;
    std::int32_t token = -1;

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static FirstToken parse(ConstByteSpan bytes);  // throws ProtocolError
};

/// The request that an offer is for, if that much of it can be read, whatever its version.
[[nodiscard]] std::optional<std::uint64_t> offered_request(ConstByteSpan offer);

}  // namespace lynx
