#include "fabric/socket.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx::fabric {

Socket::~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
}

Addresses resolve(const std::string& what, const std::string& host, std::uint16_t port, bool to_listen) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
    addrinfo* list = nullptr;
    // There is no deadline on name resolution: the system's resolver has its own (seconds, in resolv.conf).
    const int result = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (result != 0) {
        const std::string reason = result == EAI_SYSTEM ? system_reason(errno) : gai_strerror(result);
        throw ConnectionFailed(
            text(what, " ", endpoint_text(host, port), ": ", reason, "; check the spelling of the host"));
    }
    return Addresses(list);
}

bool is_loopback(const sockaddr* address) noexcept {
    constexpr std::uint8_t kLoopbackNet = 127;
    if (address->sa_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
        return ntohl(v4.s_addr) >> 24 == kLoopbackNet;
    }
    if (address->sa_family != AF_INET6) return false;
    const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kLoopbackNet);
}

std::string endpoint_text(const std::string& host, std::uint16_t port) {
    return host.find(':') == std::string::npos ? text(host, ":", port) : text("[", host, "]:", port);
}

std::string endpoint_text(const sockaddr* address, socklen_t bytes) {
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    if (getnameinfo(address, bytes, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "(unknown address)";
    }
    return endpoint_text(host.data(), static_cast<std::uint16_t>(std::stoi(port.data())));
}

bool wait_for(const Socket& socket, short events, Deadline deadline) {
    pollfd poll_fd{socket.get(), events, 0};
    return wait_for_any({&poll_fd, 1}, deadline);
}

bool wait_for_any(std::span<pollfd> sockets, Deadline deadline) {
    constexpr auto kLongest = std::chrono::hours(1);  // poll counts milliseconds in an int
    while (true) {
        const auto left = std::min<Clock::duration>(deadline.left(), kLongest);
        const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        const int ready = poll(sockets.data(), sockets.size(), static_cast<int>(left_ms));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) throw Error(text("poll failed: ", system_reason(errno)));
        if (deadline.passed()) return false;
    }
}

std::string system_reason(int error) {
    return std::generic_category().message(error);
}

}  // namespace lynx::fabric
