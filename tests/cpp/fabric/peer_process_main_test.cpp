// The test binary's main: the tests, or one peer for them (see peer_process.hpp).
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "fabric/peer_process.hpp"
#include "libfabric_leaks.hpp"
#include "lynx/buffer.hpp"

namespace lynx::testing {
namespace {

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

PeerProcess::PeerProcess(const std::string& provider) : process_({kPeerFlag, provider}) {
    std::uint64_t address_bytes = 0;
    read_all(process_.from(), &address_bytes, sizeof(address_bytes));
    address_.resize(address_bytes);
    read_all(process_.from(), address_.data(), address_.size());
    read_all(process_.from(), &arena_, sizeof(arena_));
}

bool PeerProcess::wait_arrival(Clock::duration at_most) {
    pollfd waiting{process_.from(), POLLIN, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(at_most).count();
    char one = 0;
    return poll(&waiting, 1, static_cast<int>(ms)) > 0 && read(process_.from(), &one, 1) == 1;
}

void PeerProcess::stream_to(const std::vector<std::byte>& address, const RemoteRegion& arena) const {
    const std::uint64_t address_bytes = address.size();
    write_all(process_.to(), &address_bytes, sizeof(address_bytes));
    write_all(process_.to(), address.data(), address.size());
    write_all(process_.to(), &arena, sizeof(arena));
}

}  // namespace lynx::testing

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], lynx::testing::kPeerFlag) == 0) return lynx::testing::be_a_peer(argv[2]);
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
