#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "fabric/control_impl.hpp"
#include "lynx/error.hpp"

namespace lynx {

using fabric::Socket;
using fabric::system_reason;

namespace {

constexpr int kBacklog = 64;
constexpr std::size_t kMaxStrangers = 64;
/// A stranger sends two frames before it is a peer.
constexpr Clock::duration kFrameTime = std::chrono::seconds(2);

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

/// Without a key whoever can reach the port is a peer: that has to be this machine alone, or the caller's explicit
/// wish.
void require_safe(const addrinfo* addresses, const std::string& name, const ListenOptions& options) {
    if (options.key || options.allow_unauthenticated) return;
    for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
        if (fabric::is_loopback(address->ai_addr)) continue;
        throw InvalidArgument(
            text("will not listen on ", name,
                 " without a key: whoever reaches it could read and write caches. Make a "
                 "key by `lynx keygen FILE` and give it to both sides (--key-file), or allow unauthenticated peers "
                 "knowingly (allow_unauthenticated, --insecure) on a network that you trust"));
    }
}

}  // namespace

struct ControlListener::Impl {
    /// Somebody who has connected and has not proved anything yet.
    struct Stranger {
        Stranger(Socket socket, const PresharedKey& key)
            : channel(std::make_unique<ControlChannel::Impl>(std::move(socket))),
              handshake(fabric::Role::kListening, key, channel->peer) {}

        std::unique_ptr<ControlChannel::Impl> channel;
        fabric::Handshake handshake;
        Deadline deadline = Deadline::after(kFrameTime);  // for the frame that is due
        bool answered = false;
    };

    /// Whoever has connected, or none.
    [[nodiscard]] Socket accept_now() const;
    /// Waits for a new connection or for bytes of a stranger, no longer than until the deadline or a stranger's own.
    void wait(Deadline deadline) const;
    /// One that has authenticated, or null. Throws for one that has failed. Both are strangers no more.
    [[nodiscard]] std::unique_ptr<ControlChannel::Impl> authenticated();

    Socket socket;
    std::uint16_t port = 0;
    std::string name;
    std::optional<PresharedKey> key;
    std::list<Stranger> strangers;
};

ControlListener::ControlListener(const std::string& host, std::uint16_t port, const ListenOptions& options)
    : impl_(std::make_unique<Impl>()) {
    const auto addresses = fabric::resolve("cannot listen on", host, port, true);
    require_safe(addresses.get(), fabric::endpoint_text(host, port), options);
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
    impl_->key = options.key;
}

ControlListener::ControlListener(ControlListener&&) noexcept = default;
ControlListener& ControlListener::operator=(ControlListener&&) noexcept = default;
ControlListener::~ControlListener() = default;

std::uint16_t ControlListener::port() const noexcept {
    return impl_->port;
}

std::optional<ControlChannel> ControlListener::accept(Deadline deadline) {
    for (;;) {
        // Those who were here before: they may have been waiting for this call.
        if (auto channel = impl_->authenticated()) return ControlChannel(std::move(channel));
        if (impl_->strangers.size() < kMaxStrangers) {
            if (Socket socket = impl_->accept_now()) {
                if (!impl_->key) return ControlChannel(std::make_unique<ControlChannel::Impl>(std::move(socket)));
                impl_->strangers.emplace_back(std::move(socket), *impl_->key);
                continue;
            }
        }
        if (deadline.passed()) return std::nullopt;
        impl_->wait(deadline);
    }
}

Socket ControlListener::Impl::accept_now() const {
    Socket accepted(accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted) return accepted;
    switch (errno) {
        // Whoever knocked has gone again.
        case EAGAIN:
        case EINTR:
        case ECONNABORTED:
        case EPROTO: return {};
        default:
            throw ConnectionFailed(text("cannot accept a connection on ", name, ": ", system_reason(errno),
                                        errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : ""));
    }
}

void ControlListener::Impl::wait(Deadline deadline) const {
    std::vector<pollfd> ready;
    Clock::time_point until = deadline.at();
    // Whoever comes when there are too many waits in the system's queue.
    if (strangers.size() < kMaxStrangers) ready.push_back({socket.get(), POLLIN, 0});
    for (const Stranger& stranger : strangers) {
        ready.push_back({stranger.channel->socket.get(), POLLIN, 0});
        until = std::min(until, stranger.deadline.at());
    }
    (void)fabric::wait_for_any(ready, Deadline(until));
}

std::unique_ptr<ControlChannel::Impl> ControlListener::Impl::authenticated() {
    for (auto stranger = strangers.begin(); stranger != strangers.end(); ++stranger) {
        try {
            if (stranger->channel->advance(stranger->handshake)) {
                auto channel = std::move(stranger->channel);
                strangers.erase(stranger);
                return channel;
            }
        } catch (...) {
            strangers.erase(stranger);
            throw;
        }
        if (!stranger->answered && stranger->handshake.challenged()) {
            // Only now: nobody may have looked at what it had sent in time.
            stranger->answered = true;
            stranger->deadline = Deadline::after(kFrameTime);
        }
        if (!stranger->deadline.passed()) continue;
        const std::string peer = stranger->channel->peer;
        strangers.erase(stranger);
        throw AuthenticationFailed(text("control connection to ", peer,
                                        ": the peer did not prove in time that it has "
                                        "the pre-shared key given here; the connection is closed"));
    }
    return nullptr;
}

}  // namespace lynx
