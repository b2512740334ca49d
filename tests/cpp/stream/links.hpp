// Connections between nodes of one process, and transfers over them.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "lynx/peer.hpp"

namespace lynx::testing {

inline Deadline soon() {
    return Deadline::after(std::chrono::seconds(20));
}

/// A node over `provider` at loopback.
inline Node node_of(const std::string& provider, std::size_t arena_bytes = 16u << 20) {
    return Node({.fabric = {provider, "127.0.0.1"}, .arena_bytes = arena_bytes});
}

/// One connection: its end at the prefill node, and its end at the decode node.
struct Link {
    std::optional<Peer> at_prefill, at_decode;
};

inline Link connect(const Node& prefill, const Node& decode) {
    Listener listener(prefill, "127.0.0.1", 0);
    auto connecting =
        std::async(std::launch::async, [&] { return Peer::connect(decode, "127.0.0.1", listener.port(), soon()); });
    Link link;
    link.at_prefill = listener.accept(soon());
    link.at_decode = connecting.get();
    return link;
}

/// Offers on one side, accepts on the other.
inline std::pair<PlaneSender, PlaneReceiver> open(Link& link, const Manifest& manifest,
                                                  const SenderOptions& options = {},
                                                  const ReceiverOptions& receiving = {}) {
    auto offering = std::async(std::launch::async, [&] { return link.at_prefill->offer(manifest, soon(), options); });
    auto receiver = link.at_decode->accept_offer(soon(), receiving);
    return {offering.get(), std::move(receiver.value())};
}

/// Threads may hold on to an ended transfer for an instant.
inline bool becomes_free(const Node& node) {
    for (int i = 0; i < 500 && node.arena_free_bytes() != node.arena_bytes(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return node.arena_free_bytes() == node.arena_bytes();
}

}  // namespace lynx::testing
