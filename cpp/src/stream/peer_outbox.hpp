// What waits to be sent to a peer: small messages before large ones, which go in pieces, and, where a connection may be
// taken up anew, what was sent until the peer has said that it came. Not thread-safe: its link's mutex guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "stream/peer_messages.hpp"

namespace lynx {

/// These may be large.
[[nodiscard]] constexpr bool comes_in_pieces(MessageType type) {
    return type == MessageType::kOffer || type == MessageType::kUser || type == MessageType::kResend ||
           type == MessageType::kResumed;
}

struct Frame {
    MessageType type = MessageType::kHeartbeat;
    std::vector<std::byte> payload;
};

class Outbox {
   public:
    /// A message goes in frames of at most so many bytes, so that a heartbeat, a grant or a cancel never waits behind
    /// more, and each of them shows a peer on a slow link that this side lives.
    static constexpr std::size_t kPieceBytes = 16u << 10;

    /// Keeps what is sent until it is acknowledged.
    void keep_sent() { keeps_ = true; }
    void push(Frame message);
    /// The next frame to send.
    [[nodiscard]] std::optional<Frame> next();
    [[nodiscard]] bool empty() const { return small_.empty() && large_.empty(); }
    /// Small messages that are not yet acknowledged, or not yet sent where nothing is kept; and the bytes of large
    /// ones.
    [[nodiscard]] std::size_t messages() const { return small_.size() + sent_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// The peer has got so many whole messages, since ever. False if it cannot have.
    [[nodiscard]] bool acknowledge(std::uint64_t received);
    /// The same, over a new connection: what the peer has not got is to be sent again.
    [[nodiscard]] bool rewind(std::uint64_t received);
    void clear();

   private:
    std::deque<Frame> small_;
    std::deque<Frame> large_;
    std::size_t begun_ = 0;  // bytes of the first of large_ that have been sent
    std::size_t bytes_ = 0;  // of large_, and of large messages in sent_
    bool keeps_ = false;
    std::deque<Frame> sent_;  // not acknowledged
    std::uint64_t acknowledged_ = 0;
};

}  // namespace lynx
