// A TCP socket behind RAII, and waiting on it with a deadline. Sockets here are non-blocking and close on
// exec.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lynx/deadline.hpp"

namespace lynx::fabric {

class Socket {
   public:
    Socket() noexcept = default;
    explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
    Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~Socket();

    [[nodiscard]] int get() const noexcept { return descriptor_; }
    explicit operator bool() const noexcept { return descriptor_ >= 0; }

   private:
    int descriptor_ = -1;
};

struct AddressesFree {
    void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesFree>;

/// TCP addresses of a name or address, IPv4 or IPv6. Throws ConnectionFailed ("`what` host:port: reason").
[[nodiscard]] Addresses resolve(const std::string& what, const std::string& host, std::uint16_t port, bool to_listen);

/// Is this an address that only this machine itself reaches: 127.0.0.0/8, ::1?
[[nodiscard]] bool is_loopback(const sockaddr* address) noexcept;

/// "127.0.0.1:7471", "[::1]:7471"
[[nodiscard]] std::string endpoint_text(const std::string& host, std::uint16_t port);
[[nodiscard]] std::string endpoint_text(const sockaddr* address, socklen_t bytes);

/// True once the socket is ready for `events` (POLLIN, POLLOUT) or has failed or ended; false at the
/// deadline.
[[nodiscard]] bool wait_for(const Socket& socket, short events, Deadline deadline);

/// The same for whichever is first.
[[nodiscard]] bool wait_for_any(std::span<pollfd> sockets, Deadline deadline);

/// The system's words for an errno.
[[nodiscard]] std::string system_reason(int error);

}  // namespace lynx::fabric
