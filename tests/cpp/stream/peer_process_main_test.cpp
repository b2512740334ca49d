// The test binary's main: the tests, or one peer for them (see peer_process.hpp).
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "stream/cache.hpp"
#include "stream/peer_process.hpp"

namespace lynx::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

void say(const char* line) {
    std::printf("%s\n", line);
    std::fflush(stdout);
}

void send_requests(Peer& peer) {
    TestCache cache(8, 2, 500, 64);
    for (std::uint64_t id = 1;; ++id) {
        auto sender = peer.offer(cache.manifest(id), Deadline::after(kPatience), {.bytes_per_second = 1'000'000});
        cache.put_all(sender);
        say("offered");
        if (peer.finish(sender, Deadline::after(kPatience))) say("done");
    }
}

void take_requests(Peer& peer) {
    for (;;) {
        auto receiver = peer.accept_offer(Deadline::after(kPatience));
        if (!receiver) continue;
        say("granted");
        if (receiver->wait(1, Deadline::after(kPatience))) say("complete");
        peer.finish(*receiver);
    }
}

}  // namespace

int be_a_peer(const std::string& role, const std::string& provider, const std::string& host, const std::string& port,
              const std::string& own_host, const std::string& reconnect_for_s) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char go = 0;
    if (!own_host.empty()) {
        say(unshare(CLONE_NEWNET) == 0 ? "alone" : "refused");
        if (read(STDIN_FILENO, &go, 1) != 1) return 1;
    }
    // Not joined: it ends the process with its stdin.
    std::thread([] {
        char end = 0;
        while (read(STDIN_FILENO, &end, 1) > 0) continue;
        _exit(0);
    }).detach();
    try {
        const Node node({.fabric = {provider, own_host.empty() ? "127.0.0.1" : own_host}, .arena_bytes = 64u << 20});
        PeerOptions options;
        options.reconnect_for = std::chrono::seconds(std::stoi(reconnect_for_s));
        Peer peer = Peer::connect(node, host, static_cast<std::uint16_t>(std::stoi(port)), Deadline::after(kPatience),
                                  {}, options);
        say("connected");
        role == "prefill" ? send_requests(peer) : take_requests(peer);
    } catch (const Error& e) {
        std::fprintf(stderr, "the peer process ends: %s\n", e.what());
    }
    _exit(1);
}

}  // namespace lynx::testing

int main(int argc, char** argv) {
    if (argc == 8 && std::strcmp(argv[1], lynx::testing::kPeerFlag) == 0)
        return lynx::testing::be_a_peer(argv[2], argv[3], argv[4], argv[5], argv[6], argv[7]);
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
