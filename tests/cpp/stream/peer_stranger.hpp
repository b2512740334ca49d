// A peer played by a test: it has said hello to a node's listener and can send what it likes.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "stream/peer_messages.hpp"

namespace lynx {

inline Deadline soon() {
    return Deadline::after(std::chrono::seconds(10));
}

inline NodeOptions small() {
    return {.fabric = {}, .arena_bytes = 1u << 20};
}

inline void send(ControlChannel& channel, MessageType type, ConstByteSpan payload) {
    channel.send(static_cast<std::uint8_t>(type), payload, soon());
}

/// The next message that is no heartbeat, or nothing within ten seconds.
inline std::optional<ControlMessage> next_message(ControlChannel& channel) {
    const Deadline deadline = soon();
    while (auto message = channel.receive(deadline))
        if (message->type != static_cast<std::uint8_t>(MessageType::kHeartbeat)) return message;
    return std::nullopt;
}

/// It sends no heartbeats: the node waits longer than any test, unless told otherwise.
inline PeerOptions patient() {
    PeerOptions options;
    options.lost_after = std::chrono::hours(1);
    return options;
}

struct Stranger {
    explicit Stranger(const Node& node, const Hello& hello, const PeerOptions& options = patient())
        : listener(node, "127.0.0.1", 0, {}, options),
          channel(ControlChannel::connect("127.0.0.1", listener.port(), soon())) {
        send(channel, MessageType::kHello, hello.serialize());
        peer = listener.accept(soon());
        (void)channel.receive(soon());  // the node's hello
    }
    explicit Stranger(const Node& node, const PeerOptions& options = patient())
        : Stranger(node, {node.provider(), node.address()}, options) {}

    Listener listener;
    ControlChannel channel;
    std::optional<Peer> peer;
};

inline std::string error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

}  // namespace lynx
