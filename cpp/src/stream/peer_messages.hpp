// The control messages of a peer: types and payloads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lynx/buffer.hpp"
#include "lynx/manifest.hpp"
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
    kHeartbeat = 9,  // either, where nothing else was to be sent for a while: nothing, or in a session a Heartbeat
    kPiece = 10,     // either: a piece of the next offer, resumption or user message, which has the rest
    kBye = 11,       // either, last: it leaves, and does not come back
    kResume = 12,    // sender: a Notice, its writes have ended before all was written; what has arrived?
    kResumed = 13,   // receiver: a Resumption, the answer
    kSent = 16,      // sender: a Sent
    kResend = 17,    // receiver: a Resend

    kFirstToken = 18,   // sender: a FirstToken
    kDoneInDoubt = 19,  // receiver: as kDone, and the sender seems to have given up writes: may they land yet? It
                        // answers with kCancelled
};

struct Hello {
    std::string provider;
    std::vector<std::byte> address;
    std::uint64_t epoch = 0;     // of the process
    std::uint64_t session = 0;   // chosen by the side that connects, echoed if the other one keeps it; 0: none
    bool resume = false;         // asks to resume the session, or says that it is resumed
    std::uint64_t received = 0;  // messages of the other side that have come in it

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Hello parse(ConstByteSpan bytes);  // throws ProtocolError
};

struct Heartbeat {
    std::uint64_t received = 0;  // messages of the other side, in the session

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Heartbeat parse(ConstByteSpan bytes);  // throws ProtocolError
};

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
    std::uint32_t round = 0;

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Sent parse(ConstByteSpan bytes);  // throws ProtocolError
};

/// These chunks are missing or came damaged.
struct Resend {
    std::uint64_t request_id = 0;
    Missing missing;

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

/// Where a transfer goes on.
struct Resumption {
    Grant grant;                        // with keys of its own
    std::vector<std::uint8_t> arrived;  // one byte a chunk, and up to 7 more: 1 if it has arrived

    [[nodiscard]] std::vector<std::byte> serialize() const;
    [[nodiscard]] static Resumption parse(ConstByteSpan bytes);  // throws ProtocolError
};

/// The request that an offer is for, if that much of it can be read, whatever its version.
[[nodiscard]] std::optional<std::uint64_t> offered_request(ConstByteSpan offer);

}  // namespace lynx
