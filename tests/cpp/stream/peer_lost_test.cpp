// Peers in processes of their own that are killed, stopped, restarted and cut off: each is a PeerLost within two
// seconds, and the next request works.
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "fabric/providers_for_tests.hpp"
#include "lynx/slot_layout.hpp"
#include "stream/cache.hpp"
#include "stream/peer_process.hpp"
#include "stream/peer_stranger.hpp"

namespace lynx::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kLostWithin = 3s;  // two seconds, and what a loaded machine takes
constexpr const char* kHeldLock =
    "the peer was killed or stopped with a lock of shm's in its hands, which hangs the survivor inside libfabric";

struct Survivor {
    explicit Survivor(const std::string& provider, const std::string& host = "127.0.0.1",
                      const PeerOptions& options = {})
        : node({.fabric = {provider, host}, .arena_bytes = 64u << 20}),
          listener(node, host, 0, {.allow_unauthenticated = true}, options) {}

    Node node;
    Listener listener;
    TestCache cache{8, 2, 500, 64};
};

// Throws PeerLost by what the survivor was doing, and tells how long that took.
Clock::duration time_of(const std::function<void()>& loses) {
    const auto begin = Clock::now();
    EXPECT_THROW(loses(), PeerLost);
    return Clock::now() - begin;
}

struct ALostPeer : ::testing::TestWithParam<std::tuple<std::string, int>> {
    [[nodiscard]] std::string provider() const { return std::get<0>(GetParam()); }
    [[nodiscard]] int signal() const { return std::get<1>(GetParam()); }
    void SetUp() override {
        const std::string reason = why_not(provider());
        if (!reason.empty()) GTEST_SKIP() << provider() << ": " << reason;
    }
};

TEST_P(ALostPeer, OfASenderIsToldInTimeAndTheNextRequestToANewOneWorks) {
    Survivor here(provider());
    PeerProcess first("decode", provider(), "127.0.0.1", here.listener.port());
    auto peer = here.listener.accept(Deadline::after(20s));
    ASSERT_TRUE(peer);
    auto sender = peer->offer(here.cache.manifest(1), Deadline::after(20s), {.bytes_per_second = 500'000});
    here.cache.put_all(sender);
    ASSERT_TRUE(first.says("granted"));
    first.send_signal(signal());
    EXPECT_LT(time_of([&] { (void)peer->finish(sender, Deadline::after(20s)); }), kLostWithin);
    EXPECT_TRUE(peer->lost());

    PeerProcess second("decode", provider(), "127.0.0.1", here.listener.port());
    auto next = here.listener.accept(Deadline::after(20s));
    ASSERT_TRUE(next);
    auto again = next->offer(here.cache.manifest(1), Deadline::after(20s));
    here.cache.put_all(again);
    const bool done = next->finish(again, Deadline::after(provider() == "shm" ? 5s : 20s));
    if (!done && provider() == "shm") GTEST_SKIP() << kHeldLock;
    EXPECT_TRUE(done);
}

TEST_P(ALostPeer, OfAReceiverIsToldInTimeAndTheNextRequestOfANewOneWorks) {
    Survivor here(provider());
    PeerProcess first("prefill", provider(), "127.0.0.1", here.listener.port());
    auto peer = here.listener.accept(Deadline::after(20s));
    ASSERT_TRUE(peer);
    auto receiver = peer->accept_offer(Deadline::after(20s));
    ASSERT_TRUE(receiver && first.says("offered"));
    first.send_signal(signal());
    EXPECT_LT(time_of([&] { (void)receiver->wait(1, Deadline::after(20s)); }), kLostWithin);

    PeerProcess second("prefill", provider(), "127.0.0.1", here.listener.port());
    auto next = here.listener.accept(Deadline::after(20s));
    ASSERT_TRUE(next);
    auto again = next->accept_offer(Deadline::after(20s));
    ASSERT_TRUE(again);
    const bool done = again->wait(1, Deadline::after(provider() == "shm" ? 5s : 20s));
    if (!done && provider() == "shm") GTEST_SKIP() << kHeldLock;
    ASSERT_TRUE(done);
    EXPECT_LT(here.cache.error_of(*again, 1), 0.05F);
    next->finish(*again);
    EXPECT_TRUE(second.says("done"));

    // Of a sender that is no more, nothing can land any more; one that is stopped may go on.
    receiver.reset();
    again.reset();
    const Deadline patience = Deadline::after(signal() == SIGKILL ? 10s : 3s);
    while (here.node.arena_free_bytes() < here.node.arena_bytes() && !patience.passed())
        std::this_thread::sleep_for(50ms);
    EXPECT_EQ(here.node.arena_free_bytes() == here.node.arena_bytes(), signal() == SIGKILL);
}

using AStoppedPeer = EachProvider;

TEST_P(AStoppedPeer, DoesNotTakeTheSurvivorForLostWhenItGoesOn) {
    Survivor here(GetParam(), "127.0.0.1", patient());
    PeerProcess other("prefill", GetParam(), "127.0.0.1", here.listener.port());
    auto peer = here.listener.accept(Deadline::after(20s));
    ASSERT_TRUE(peer);
    auto receiver = peer->accept_offer(Deadline::after(20s));
    ASSERT_TRUE(receiver && other.says("offered"));
    other.send_signal(SIGSTOP);
    std::this_thread::sleep_for(2500ms);  // longer than the silence that it allows
    other.send_signal(SIGCONT);
    EXPECT_TRUE(receiver->wait(1, Deadline::after(20s)));
    peer->finish(*receiver);
    EXPECT_TRUE(other.says("done"));
}

INSTANTIATE_TEST_SUITE_P(Peers, ALostPeer,
                         ::testing::Combine(::testing::ValuesIn(tested_providers()),
                                            ::testing::Values(SIGKILL, SIGSTOP)),
                         [](const auto& instance) {
                             std::string name = std::get<0>(instance.param);
                             std::ranges::replace(name, ';', '_');
                             return name + (std::get<1>(instance.param) == SIGKILL ? "_killed" : "_stopped");
                         });

int shell(const std::string& command) {
    return std::system(command.c_str());  // NOLINT(bugprone-command-processor): the test's own fixed words
}

// Runs `body` in a network namespace of this thread, and of what it starts; empty, or why that cannot be.
std::string in_a_network_of_its_own(const std::function<void()>& body) {
    std::string reason;
    std::thread([&] {
        if (unshare(CLONE_NEWNET) != 0)
            reason = "no network namespace can be made: it takes root";
        else if (shell("ip link set lo up 2>/dev/null") != 0)
            reason = "the command ip, of iproute2, is not there";
        else
            body();
    }).join();
    return reason;
}

int ip(const std::string& arguments) {
    return shell("ip " + arguments);
}

constexpr const char* kHere = "10.231.7.1";
constexpr const char* kThere = "10.231.7.2";

// A process at the other end of a virtual cable.
struct Cable {
    Cable(const std::string& role, const std::string& provider, std::uint16_t port, int reconnect_for_s = 0)
        : process(role, provider, kHere, port, kThere, reconnect_for_s) {
        const std::string there = std::to_string(process.pid());
        const std::string inside = "nsenter -t " + there + " -n ip ";
        joined = process.says("alone") && ip("link add far0 type veth peer name far1") == 0 &&
                 ip("link set far1 netns " + there) == 0 &&
                 shell(inside + "addr add " + kThere + "/24 dev far1") == 0 &&
                 shell(inside + "link set far1 up") == 0 && shell(inside + "link set lo up") == 0 &&
                 ip(std::string("addr add ") + kHere + "/24 dev far0") == 0 && ip("link set far0 up") == 0;
        process.go_on();
    }
    ~Cable() { (void)ip("link del far0"); }
    PeerProcess process;
    bool joined = false;
};

using ACutLink = EachProvider;

TEST_P(ACutLink, IsALostPeerInTimeAndTheNextRequestOverAnotherLinkWorks) {
    if (GetParam() == "shm") GTEST_SKIP() << "shm has no link";
    const std::string reason = in_a_network_of_its_own([&] {
        // On lo, too, so that it is there before the cable and after it.
        ASSERT_EQ(ip(std::string("addr add ") + kHere + "/32 dev lo"), 0);
        Survivor here(GetParam(), kHere);
        {
            Cable cable("decode", GetParam(), here.listener.port());
            ASSERT_TRUE(cable.joined);
            auto peer = here.listener.accept(Deadline::after(20s));
            ASSERT_TRUE(peer);
            auto sender = peer->offer(here.cache.manifest(1), Deadline::after(20s), {.bytes_per_second = 500'000});
            here.cache.put_all(sender);
            ASSERT_TRUE(cable.process.says("granted"));
            ASSERT_EQ(ip("link set far0 down"), 0);
            EXPECT_LT(time_of([&] { (void)peer->finish(sender, Deadline::after(20s)); }), kLostWithin);
        }
        Cable cable("decode", GetParam(), here.listener.port());
        ASSERT_TRUE(cable.joined);
        auto peer = here.listener.accept(Deadline::after(20s));
        ASSERT_TRUE(peer);
        auto sender = peer->offer(here.cache.manifest(1), Deadline::after(20s));
        here.cache.put_all(sender);
        EXPECT_TRUE(peer->finish(sender, Deadline::after(20s)));
    });
    if (!reason.empty()) GTEST_SKIP() << reason;
}

TEST_P(ACutLink, ThatIsMendedInTimeGoesOnWhereItWas) {
    if (GetParam() == "shm") GTEST_SKIP() << "shm has no link";
    const std::string reason = in_a_network_of_its_own([&] {
        ASSERT_EQ(ip(std::string("addr add ") + kHere + "/32 dev lo"), 0);
        PeerOptions options;
        options.reconnect_for = 60s;
        Survivor here(GetParam(), kHere, options);
        Cable cable("decode", GetParam(), here.listener.port(), 60);
        ASSERT_TRUE(cable.joined);
        auto peer = here.listener.accept(Deadline::after(20s));
        ASSERT_TRUE(peer);
        auto sender = peer->offer(here.cache.manifest(1), Deadline::after(20s), {.bytes_per_second = 500'000});
        here.cache.put_all(sender);
        ASSERT_TRUE(cable.process.says("granted"));
        std::this_thread::sleep_for(300ms);
        ASSERT_EQ(ip("link set far0 down"), 0);
        std::this_thread::sleep_for(3s);  // both take the other one for lost
        ASSERT_EQ(ip("link set far0 up"), 0);
        EXPECT_TRUE(peer->finish(sender, Deadline::after(40s)));
        EXPECT_TRUE(cable.process.says("complete"));
        EXPECT_LT(sender.progress().resent_bytes, SlotLayout(here.cache.manifest(1)).bytes() / 4);
    });
    if (!reason.empty()) GTEST_SKIP() << reason;
}

TEST(ASlowLink, IsNotALostPeerWhileLargeMessagesCrossIt) {
    const std::string reason = in_a_network_of_its_own([&] {
        ASSERT_EQ(ip(std::string("addr add ") + kHere + "/32 dev lo"), 0);
        Survivor here("auto", kHere);
        Cable cable("decode", "auto", here.listener.port());
        ASSERT_TRUE(cable.joined);
        ASSERT_EQ(shell("tc qdisc add dev far0 root tbf rate 800kbit burst 16k latency 50ms"), 0);
        auto peer = here.listener.accept(Deadline::after(20s));
        ASSERT_TRUE(peer);
        peer->send_message(std::vector<std::byte>(500'000));  // five seconds of the link
        TestCache small(1, 1, 8, 64);
        const auto begin = Clock::now();
        auto sender = peer->offer(small.manifest(1), Deadline::after(30s));  // waits its turn, and nobody is lost
        EXPECT_GT(Clock::now() - begin, 2500ms);
        small.put_all(sender);
        EXPECT_TRUE(peer->finish(sender, Deadline::after(20s)));
    });
    if (!reason.empty()) GTEST_SKIP() << reason;
}

INSTANTIATE_TEST_SUITE_P(Peers, AStoppedPeer, ::testing::ValuesIn(tested_providers()), provider_test_name);
INSTANTIATE_TEST_SUITE_P(Peers, ACutLink, ::testing::ValuesIn(tested_providers()), provider_test_name);

}  // namespace
}  // namespace lynx::testing
