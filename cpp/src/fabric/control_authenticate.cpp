// A ControlChannel's handshake: Handshake, with a socket.
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "core/text.hpp"
#include "fabric/control_impl.hpp"
#include "lynx/error.hpp"

namespace lynx {

using fabric::Handshake;

namespace {

constexpr Clock::duration kPollSlice = std::chrono::milliseconds(50);

}  // namespace

void ControlChannel::Impl::send_now(ConstByteSpan bytes) noexcept {
    // They fit: nothing else has been sent before them. What did not is noticed by the other side's deadline.
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
}

bool ControlChannel::Impl::advance(Handshake& handshake) {
    std::array<std::byte, fabric::kFrameHeaderBytes + sizeof(fabric::Challenge)> bytes;
    while (!handshake.done()) {
        const ssize_t got = recv(socket.get(), bytes.data(), handshake.lacks(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (got <= 0)
            throw AuthenticationFailed(text("control connection to ", peer, ": it ended (",
                                            got == 0 ? "the peer has closed it" : fabric::system_reason(errno),
                                            ") before both sides had proved that they have the same pre-shared key"));
        try {
            handshake.take(std::span(bytes).first(static_cast<std::size_t>(got)));
        } catch (...) {
            send_now(handshake.output());  // says why
            throw;
        }
        send_now(handshake.output());
    }
    seal = handshake.seal();
    return true;
}

void ControlChannel::Impl::authenticate(const PresharedKey& key, Deadline deadline, const ConnectOptions& options) {
    Handshake handshake(fabric::Role::kConnecting, key, peer);
    send_now(handshake.output());
    while (!advance(handshake)) {
        if (deadline.passed())
            throw Timeout(text("the peer at ", peer,
                               " accepted the connection but did not authenticate in time; is it serving another?"));
        (void)fabric::wait_for(socket, POLLIN, Deadline(std::min(deadline.at(), Clock::now() + kPollSlice)));
        if (options.poll) options.poll();
    }
}

}  // namespace lynx
