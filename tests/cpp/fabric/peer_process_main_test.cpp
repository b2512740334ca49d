// The test binary's main: the tests, or one peer for them (see peer_process.hpp).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "fabric/peer_process.hpp"
#include "libfabric_leaks.hpp"
#include "lynx/buffer.hpp"

extern char** environ;

namespace lynx::testing {
namespace {

void write_all(int to, const void* data, std::size_t bytes) {
    if (write(to, data, bytes) != static_cast<ssize_t>(bytes)) throw std::runtime_error("short write to a pipe");
}

void read_all(int from, void* data, std::size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
        pollfd waiting{from, POLLIN, 0};
        if (poll(&waiting, 1, 30'000) <= 0) throw std::runtime_error("the peer process says nothing");
        const ssize_t got = read(from, at, bytes);
        if (got <= 0) throw std::runtime_error("the peer process has ended early");
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

class PeerCalls final : public EndpointHandler {
   public:
    void on_arrival(std::uint32_t) noexcept override {
        const char one = 1;
        (void)!write(STDOUT_FILENO, &one, 1);
    }
    const Write* next_write(Clock::time_point, Clock::time_point&) noexcept override {
        return streaming && in_flight < kMostInFlight ? &stream : nullptr;
    }
    void on_posted() noexcept override { ++in_flight; }
    void on_written(std::uint64_t) noexcept override { --in_flight; }
    void on_write_failed(std::uint64_t, std::exception_ptr) noexcept override { streaming = false; }

    Write stream;  // set before `streaming`
    std::atomic<bool> streaming = false;

   private:
    static constexpr int kMostInFlight = 4;
    int in_flight = 0;
};

}  // namespace

int be_a_peer(const std::string& provider) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Fabric fabric({.provider = provider});
    const Buffer buffer(kPeerArenaBytes);
    const MemoryRegion region(fabric, buffer.span());
    PeerCalls calls;
    Endpoint endpoint(fabric, calls);
    const auto address = endpoint.address();
    const std::uint64_t address_bytes = address.size();
    const RemoteRegion arena = region.remote();
    write_all(STDOUT_FILENO, &address_bytes, sizeof(address_bytes));
    write_all(STDOUT_FILENO, address.data(), address.size());
    write_all(STDOUT_FILENO, &arena, sizeof(arena));
    std::uint64_t target_bytes = 0;
    while (read(STDIN_FILENO, &target_bytes, sizeof(target_bytes)) == sizeof(target_bytes)) {
        std::vector<std::byte> target(target_bytes);
        RemoteRegion remote;
        read_all(STDIN_FILENO, target.data(), target.size());
        read_all(STDIN_FILENO, &remote, sizeof(remote));
        calls.stream = {.source = buffer.span(),
                        .descriptor = region.descriptor(),
                        .peer = endpoint.add_peer(target),
                        .remote_address = remote.address,
                        .remote_key = remote.key};
        calls.streaming = true;
        endpoint.wake();
    }
    return 0;
}

PeerProcess::PeerProcess(const std::string& provider) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string flag = kPeerFlag;
    std::string name = provider;
    std::string self = "lynx-test-peer";
    const std::array<char*, 4> arguments = {self.data(), flag.data(), name.data(), nullptr};
    // A session of its own: a stopped process in ours could earn all of us a SIGHUP, should our group be orphaned then.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    const int failed = posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_peer_ = in[1];
    from_peer_ = out[0];
    if (failed != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(failed));
    std::uint64_t address_bytes = 0;
    read_all(from_peer_, &address_bytes, sizeof(address_bytes));
    address_.resize(address_bytes);
    read_all(from_peer_, address_.data(), address_.size());
    read_all(from_peer_, &arena_, sizeof(arena_));
}

PeerProcess::~PeerProcess() {
    kill_now();
    close(to_peer_);
    close(from_peer_);
}

bool PeerProcess::wait_arrival(Clock::duration at_most) {
    pollfd waiting{from_peer_, POLLIN, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(at_most).count();
    char one = 0;
    return poll(&waiting, 1, static_cast<int>(ms)) > 0 && read(from_peer_, &one, 1) == 1;
}

void PeerProcess::stream_to(const std::vector<std::byte>& address, const RemoteRegion& arena) const {
    const std::uint64_t address_bytes = address.size();
    write_all(to_peer_, &address_bytes, sizeof(address_bytes));
    write_all(to_peer_, address.data(), address.size());
    write_all(to_peer_, &arena, sizeof(arena));
}

void PeerProcess::send_signal(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
}

void PeerProcess::kill_now() {
    send_signal(SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

int PeerProcess::finish() {
    close(to_peer_);
    to_peer_ = -1;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
}

}  // namespace lynx::testing

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], lynx::testing::kPeerFlag) == 0) return lynx::testing::be_a_peer(argv[2]);
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
