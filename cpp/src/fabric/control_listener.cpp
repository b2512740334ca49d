#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <string>

#include "core/text.hpp"
#include "fabric/control_impl.hpp"
#include "lynx/error.hpp"

namespace lynx {

using fabric::Socket;
using fabric::system_reason;

namespace {

constexpr int kBacklog = 64;

/// Sets `error` to 0 or an errno.
Socket try_listen(const addrinfo& address, int& error) {
    Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
    // Without it a port stays taken for a minute after its last connection.
    const int on = 1;
    const bool ok = socket && setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                    bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 && listen(socket.get(), kBacklog) == 0;
    error = ok ? 0 : errno;
    return ok ? std::move(socket) : Socket();
}

std::uint16_t port_of(const Socket& socket) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                               : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

const char* advice_for(int error) {
    switch (error) {
        case EADDRINUSE: return "another program has the port; choose another one, or 0 for any free one";
        case EADDRNOTAVAIL: return "this machine has no such address; name one of its own";
        case EACCES: return "ports below 1024 need privileges; choose a higher one";
        default: return "choose another host or port";
    }
}

}  // namespace

struct ControlListener::Impl {
    Socket socket;
    std::uint16_t port = 0;
    std::string name;
};

ControlListener::ControlListener(const std::string& host, std::uint16_t port) : impl_(std::make_unique<Impl>()) {
    const auto addresses = fabric::resolve("cannot listen on", host, port, true);
    int error = 0;
    for (const addrinfo* address = addresses.get(); address != nullptr && !impl_->socket; address = address->ai_next) {
        impl_->socket = try_listen(*address, error);
    }
    if (!impl_->socket) {
        throw ConnectionFailed(text("cannot listen on ", fabric::endpoint_text(host, port), ": ", system_reason(error),
                                    "; ", advice_for(error)));
    }
    impl_->port = port_of(impl_->socket);
    impl_->name = fabric::endpoint_text(host, impl_->port);
}

ControlListener::ControlListener(ControlListener&&) noexcept = default;
ControlListener& ControlListener::operator=(ControlListener&&) noexcept = default;
ControlListener::~ControlListener() = default;

std::uint16_t ControlListener::port() const noexcept {
    return impl_->port;
}

std::optional<ControlChannel> ControlListener::accept(Deadline deadline) {
    while (fabric::wait_for(impl_->socket, POLLIN, deadline)) {
        Socket socket(accept4(impl_->socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket) return ControlChannel(std::make_unique<ControlChannel::Impl>(std::move(socket)));
        switch (errno) {
            // Whoever knocked has gone again, or another thread took it.
            case EAGAIN:
            case EINTR:
            case ECONNABORTED:
            case EPROTO: break;
            default:
                throw ConnectionFailed(text("cannot accept a connection on ", impl_->name, ": ", system_reason(errno),
                                            errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : ""));
        }
    }
    return std::nullopt;
}

}  // namespace lynx
