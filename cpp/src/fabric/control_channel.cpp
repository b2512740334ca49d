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
using fabric::FrameKind;
using fabric::Refusal;
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
            if (!socket) continue;
            auto impl = std::make_unique<Impl>(std::move(socket));
            if (options.key) impl->authenticate(*options.key, deadline, options);
            return ControlChannel(std::move(impl));
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

void ControlChannel::Impl::send_all(ConstByteSpan first, ConstByteSpan second, Deadline deadline) {
    std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(first.data()), first.size()},
                                  iovec{const_cast<std::byte*>(second.data()), second.size()}};
    std::size_t left = first.size() + second.size();
    const std::size_t all = left;
    while (left > 0) {
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
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
            lost(errno == EPIPE ? "the peer has closed it" : system_reason(errno));
        }
        if (wait_for(socket, POLLOUT, deadline)) continue;
        // A frame cut in the middle would be read as garbage, and one left out breaks the seal of all that follow: end
        // the connection rather than its meaning.
        const bool ends = left < all || seal;
        if (ends) end();
        throw Timeout(text("control connection to ", peer, ": ", left, " of ", all,
                           " bytes were not taken by the deadline; the peer does not read",
                           ends ? ", and the connection is closed" : ""));
    }
}

void ControlChannel::send(std::uint8_t type, ConstByteSpan payload, Deadline deadline) {
    if (payload.size() > kMaxControlPayload) {
        throw InvalidArgument(text("a control message of ", payload.size(), " bytes was to be sent to ", impl_->peer,
                                   "; at most ", kMaxControlPayload, " fit in one"));
    }
    const std::scoped_lock lock(impl_->send_mutex);
    if (impl_->seal) return impl_->send_all(impl_->seal->seal(type, payload), {}, deadline);
    const FrameBytes header =
        FrameHeader{.type = type, .payload_bytes = static_cast<std::uint32_t>(payload.size())}.pack();
    impl_->send_all(std::as_bytes(std::span(header)), payload, deadline);
}

std::vector<std::byte> ControlChannel::Impl::read_payload(std::size_t bytes, Deadline deadline) {
    std::vector<std::byte> payload;
    while (payload.size() < bytes) {
        const std::size_t had = payload.size();
        payload.resize(std::min(bytes, had + kPayloadStep));
        read_all(std::span(payload).subspan(had), deadline);
    }
    return payload;
}

ControlMessage ControlChannel::Impl::read_plain(std::size_t max_payload, Deadline deadline) {
    FrameBytes bytes{};
    read_all(std::as_writable_bytes(std::span(bytes)), deadline);
    const FrameHeader header = fabric::read_header(bytes, max_payload, peer);
    if (header.kind == FrameKind::kRefusal) fabric::throw_refused(header.type, peer);
    if (header.kind != FrameKind::kMessage) {
        const FrameBytes refusal =
            FrameHeader{.type = static_cast<std::uint8_t>(Refusal::kNoKeyHere), .kind = FrameKind::kRefusal}.pack();
        send_now(std::as_bytes(std::span(refusal)));
        fabric::throw_refused(static_cast<std::uint8_t>(Refusal::kKeyNeeded), peer);
    }
    return {header.type, read_payload(header.payload_bytes, deadline)};
}

ControlMessage ControlChannel::Impl::read_sealed(std::size_t max_payload, Deadline deadline) {
    std::array<std::byte, fabric::kSealedHeaderBytes> bytes{};
    read_all(bytes, deadline);
    const FrameHeader header = seal->open_header(bytes, max_payload, peer);
    return {header.type, seal->open_payload(read_payload(fabric::sealed_bytes(header.payload_bytes), deadline), peer)};
}

std::optional<ControlMessage> ControlChannel::receive(Deadline deadline, const ReceiveLimits& limits) {
    if (!wait_for(impl_->socket, POLLIN, deadline)) return std::nullopt;
    // A begun frame is let finish: half a frame would end the connection. Counted from now, so that a deadline at the
    // end of time does not overflow.
    const Clock::duration left = std::min<Clock::duration>(deadline.left(), std::chrono::hours(24));
    const Deadline whole = Deadline::after(left + limits.grace);
    try {
        return impl_->seal ? impl_->read_sealed(limits.max_payload, whole)
                           : impl_->read_plain(limits.max_payload, whole);
    } catch (...) {
        impl_->end();
        throw;
    }
}

void ControlChannel::shutdown() noexcept {
    impl_->end();
}

const std::string& ControlChannel::peer_name() const noexcept {
    return impl_->peer;
}

}  // namespace lynx
