#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "core/text.hpp"
#include "fabric/control_frame.hpp"
#include "fabric/control_impl.hpp"
#include "lynx/error.hpp"

namespace lynx {

using fabric::FrameBytes;
using fabric::FrameHeader;
using fabric::Socket;
using fabric::system_reason;
using fabric::wait_for;

namespace {

constexpr Clock::duration kPollSlice = std::chrono::milliseconds(50);
constexpr Clock::duration kRefusedRetry = std::chrono::milliseconds(20);
/// Memory for a payload grows as its bytes come: a claim alone costs a peer nothing and us no more than this.
constexpr std::size_t kPayloadStep = 1u << 20;

/// Retrying a connect to a free port of this machine can end in TCP's simultaneous open: connected to
/// oneself.
bool is_connected_to_itself(const Socket& socket) {
    sockaddr_storage own{};
    sockaddr_storage other{};
    socklen_t own_bytes = sizeof(own);
    socklen_t other_bytes = sizeof(other);
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0) return false;
    if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0) return false;
    return own_bytes == other_bytes && fabric::endpoint_text(reinterpret_cast<sockaddr*>(&own), own_bytes) ==
                                           fabric::endpoint_text(reinterpret_cast<sockaddr*>(&other), other_bytes);
}

/// One try at one address. Sets `error` to 0 or an errno.
Socket try_connect(const addrinfo& address, Deadline deadline, const ConnectOptions& options, int& error) {
    Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
    error = 0;
    if (!socket ||
        (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS && errno != EINTR)) {
        error = errno;
        return {};
    }
    while (!wait_for(socket, POLLOUT, Deadline(std::min(deadline.at(), Clock::now() + kPollSlice)))) {
        if (deadline.passed()) {
            error = ETIMEDOUT;
            return {};
        }
        if (options.poll) options.poll();
    }
    socklen_t bytes = sizeof(error);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
    return error == 0 ? std::move(socket) : Socket();
}

const char* advice_for(int error) {
    switch (error) {
        case ECONNREFUSED: return "nobody listens there; start the other side first, or check the port";
        case ETIMEDOUT: return "no answer by the deadline; check the address and the firewall between";
        default: return "check the address and the route to it";
    }
}

}  // namespace

ControlChannel::Impl::Impl(Socket connected) : socket(std::move(connected)) {
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0) {
        peer = fabric::endpoint_text(reinterpret_cast<sockaddr*>(&address), bytes);
    } else {
        peer = "(gone)";
    }
}

void ControlChannel::Impl::end() noexcept {
    ended = true;
    ::shutdown(socket.get(), SHUT_RDWR);
}

void ControlChannel::Impl::lost(const std::string& reason) const {
    throw PeerLost(text("control connection to ", peer, ": ",
                        ended ? std::string("it was shut down on this side") : reason + "; connect anew to go on"));
}

void ControlChannel::Impl::read_all(ByteSpan to, Deadline deadline) {
    while (!to.empty()) {
        if (!wait_for(socket, POLLIN, deadline)) {
            end();
            throw Timeout(text("control connection to ", peer, ": a message was begun and ", to.size(),
                               " bytes of it did not come in time; the connection is closed"));
        }
        const ssize_t got = recv(socket.get(), to.data(), to.size(), 0);
        if (got > 0) {
            to = to.subspan(static_cast<std::size_t>(got));
        } else if (got == 0) {
            lost("the peer has closed it");
        } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            lost(system_reason(errno));
        }
    }
}

ControlChannel ControlChannel::connect(const std::string& host, std::uint16_t port, Deadline deadline,
                                       const ConnectOptions& options) {
    const auto addresses = fabric::resolve("cannot connect to", host, port, false);
    while (true) {
        int error = 0;
        for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
            Socket socket = try_connect(*address, deadline, options, error);
            if (socket) return ControlChannel(std::make_unique<Impl>(std::move(socket)));
        }
        const bool again = options.retry_refused && error == ECONNREFUSED && !deadline.passed();
        if (!again) {
            throw ConnectionFailed(text("cannot connect to ", fabric::endpoint_text(host, port), ": ",
                                        system_reason(error), "; ", advice_for(error)));
        }
        if (options.poll) options.poll();
        std::this_thread::sleep_for(std::min(kRefusedRetry, deadline.left()));
    }
}

ControlChannel::ControlChannel(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
ControlChannel::ControlChannel(ControlChannel&&) noexcept = default;
ControlChannel& ControlChannel::operator=(ControlChannel&&) noexcept = default;
ControlChannel::~ControlChannel() = default;

void ControlChannel::send(std::uint8_t type, ConstByteSpan payload, Deadline deadline) {
    if (payload.size() > kMaxControlPayload) {
        throw InvalidArgument(text("a control message of ", payload.size(), " bytes was to be sent to ", impl_->peer,
                                   "; at most ", kMaxControlPayload, " fit in one"));
    }
    FrameBytes header = FrameHeader{.type = type, .payload_bytes = static_cast<std::uint32_t>(payload.size())}.pack();
    std::array<iovec, 2> parts = {iovec{header.data(), header.size()},
                                  iovec{const_cast<std::byte*>(payload.data()), payload.size()}};
    const std::scoped_lock lock(impl_->send_mutex);
    std::size_t left = header.size() + payload.size();
    const std::size_t all = left;
    while (left > 0) {
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        const ssize_t sent = sendmsg(impl_->socket.get(), &message, MSG_NOSIGNAL);
        if (sent >= 0) {
            left -= static_cast<std::size_t>(sent);
            auto skip = static_cast<std::size_t>(sent);
            for (auto& part : parts) {
                const std::size_t here = std::min(skip, part.iov_len);
                part.iov_base = static_cast<std::byte*>(part.iov_base) + here;
                part.iov_len -= here;
                skip -= here;
            }
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
            impl_->lost(errno == EPIPE ? "the peer has closed it" : system_reason(errno));
        }
        if (wait_for(impl_->socket, POLLOUT, deadline)) continue;
        // A frame cut in the middle would be read as garbage: end the connection rather than its meaning.
        if (left < all) impl_->end();
        throw Timeout(text("control connection to ", impl_->peer, ": ", left, " of ", all,
                           " bytes were not taken by the deadline; the peer does not read",
                           left < all ? ", and the connection is closed" : ""));
    }
}

std::optional<ControlMessage> ControlChannel::receive(Deadline deadline, Clock::duration grace) {
    if (!wait_for(impl_->socket, POLLIN, deadline)) return std::nullopt;
    // A begun frame is let finish: half a frame would end the connection. Counted from now, so that a deadline at the
    // end of time does not overflow.
    const Clock::duration left = std::min<Clock::duration>(deadline.left(), std::chrono::hours(24));
    const Deadline whole = Deadline::after(left + grace);
    FrameBytes bytes{};
    impl_->read_all(std::as_writable_bytes(std::span(bytes)), whole);
    const FrameHeader header = FrameHeader::unpack(bytes);
    const auto refuse = [this](const std::string& why) {
        impl_->end();
        throw ProtocolError(text("control connection to ", impl_->peer, ": ", why, "; the connection is closed"));
    };
    if (header.magic != FrameHeader::kMagic) refuse("what came is no Lynx message; is the port that of a Lynx peer?");
    if (header.version != kControlVersion) {
        refuse(text("the peer speaks version ", int{header.version}, " of the control protocol and this side version ",
                    int{kControlVersion}, "; install the same Lynx on both sides"));
    }
    if (header.zero != 0) refuse(text("a message of type ", int{header.type}, " has its reserved field set"));
    if (header.payload_bytes > kMaxControlPayload) {
        refuse(text("a message of type ", int{header.type}, " claims ", header.payload_bytes, " bytes; at most ",
                    kMaxControlPayload, " are accepted"));
    }
    ControlMessage message;
    message.type = header.type;
    while (message.payload.size() < header.payload_bytes) {
        const std::size_t had = message.payload.size();
        message.payload.resize(std::min<std::size_t>(header.payload_bytes, had + kPayloadStep));
        impl_->read_all(std::span(message.payload).subspan(had), whole);
    }
    return message;
}

void ControlChannel::shutdown() noexcept {
    impl_->end();
}

const std::string& ControlChannel::peer_name() const noexcept {
    return impl_->peer;
}

}  // namespace lynx
