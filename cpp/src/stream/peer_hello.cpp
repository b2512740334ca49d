#include "stream/peer_hello.hpp"

#include <algorithm>
#include <optional>
#include <random>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

namespace {

constexpr auto kPollSlice = std::chrono::milliseconds(50);

std::uint64_t random_number() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

}  // namespace

std::uint64_t process_epoch() {
    static const std::uint64_t epoch = random_number();
    return epoch;
}

std::uint64_t new_session() {
    return random_number() | 1;
}

Hello hello_of(const Node& node) {
    return {.provider = node.provider(), .address = node.address(), .epoch = process_epoch()};
}

void send_hello(ControlChannel& channel, const Hello& hello, Deadline deadline) {
    channel.send(static_cast<std::uint8_t>(MessageType::kHello), hello.serialize(), deadline);
}

Hello receive_hello(ControlChannel& channel, Deadline deadline, const std::function<void()>& poll) {
    std::optional<ControlMessage> message;
    do {
        message = channel.receive(Deadline(std::min(deadline.at(), Clock::now() + kPollSlice)),
                                  {.max_payload = kMaxStrangerPayload});
        if (poll) poll();
    } while (!message && !deadline.passed());
    if (!message)
        throw Timeout(text("the peer at ", channel.peer_name(), " is connected but did not say hello in time"));
    if (message->type != static_cast<std::uint8_t>(MessageType::kHello))
        throw ProtocolError(text("the peer at ", channel.peer_name(), " sent message type ", int{message->type},
                                 " where a hello was due"));
    return Hello::parse(message->payload);
}

void check_provider(const Hello& theirs, const ControlChannel& channel, const Node& node) {
    if (theirs.provider != node.provider())
        throw ProtocolError(text("the peer at ", channel.peer_name(), " uses provider ", theirs.provider,
                                 ", this node ", node.provider(), ": start both with the same provider"));
}

}  // namespace lynx
