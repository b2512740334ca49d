// What two peers say to each other first.
#pragma once

#include <cstdint>
#include <functional>

#include "lynx/control.hpp"
#include "lynx/node.hpp"
#include "stream/peer_messages.hpp"

namespace lynx {

/// Random, and the same as long as the process lives.
[[nodiscard]] std::uint64_t process_epoch();
/// Random, and not 0.
[[nodiscard]] std::uint64_t new_session();

/// What this node says.
[[nodiscard]] Hello hello_of(const Node& node);
void send_hello(ControlChannel& channel, const Hello& hello, Deadline deadline);
/// Calls `poll`, if there is one, about every 50 ms. Throws Timeout, PeerLost, ProtocolError.
[[nodiscard]] Hello receive_hello(ControlChannel& channel, Deadline deadline, const std::function<void()>& poll = {});
/// Throws ProtocolError if the peer uses another provider.
void check_provider(const Hello& theirs, const ControlChannel& channel, const Node& node);

}  // namespace lynx
