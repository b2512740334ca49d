// Peers in processes of their own that are killed, stopped or end: the writer is told, and goes on.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "fabric/peer_process.hpp"
#include "fabric/providers_for_tests.hpp"
#include "fabric/recorder.hpp"
#include "lynx/buffer.hpp"

namespace lynx::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kPostDeadline = 500ms;
constexpr std::size_t kWriteBytes = 256 << 10;

struct Writer {
    explicit Writer(const std::string& provider, Clock::duration post_deadline = kPostDeadline)
        : fabric({.provider = provider}),
          buffer(kWriteBytes),
          region(fabric, buffer.span()),
          endpoint(fabric, calls, {.post_deadline = post_deadline}) {}

    void push(const PeerProcess& process, PeerId peer, std::uint32_t count, std::size_t bytes = kWriteBytes) {
        for (std::uint32_t i = 0; i < count; ++i) {
            calls.push({.source = buffer.span().first(bytes),
                        .descriptor = region.descriptor(),
                        .peer = peer,
                        .remote_address = process.arena().address,
                        .remote_key = process.arena().key,
                        .tag = pushed,
                        .cookie = pushed});
            ++pushed;
        }
        endpoint.wake();
    }

    Fabric fabric;
    Buffer buffer;
    MemoryRegion region;
    Recorder calls;
    std::uint32_t pushed = 0;
    Endpoint endpoint;
};

using WithLostPeers = EachProvider;

constexpr const char* kHeldLock =
    "the peer was killed or stopped with a lock of shm's in its hands, which hangs the others inside libfabric; that "
    "closing is prompt all the same is another test";

TEST_P(WithLostPeers, AKilledPeerFailsTheWritesToItByTheDeadlineAndANewPeerWorks) {
    constexpr std::uint32_t kMany = 4000;  // more than any queue here holds
    Writer writer(GetParam());
    PeerProcess first(GetParam());
    const PeerId first_id = writer.endpoint.add_peer(first.address());
    writer.push(first, first_id, kMany);
    ASSERT_TRUE(first.wait_arrival(20s));
    first.kill_now();
    const bool told = writer.calls.wait_failures(1, 10 * kPostDeadline);
    if (!told && GetParam() == "shm") {
        GTEST_SKIP() << kHeldLock;
    }
    ASSERT_TRUE(told);
    const auto failure = writer.calls.failures()[0];
    EXPECT_TRUE(failure.type == "PeerLost" || failure.type == "Timeout") << failure.type << ": " << failure.message;
    EXPECT_NE(failure.message.find("'" + GetParam() + "'"), std::string::npos) << failure.message;
    EXPECT_NE(failure.message.find("peer " + std::to_string(first_id)), std::string::npos) << failure.message;
    RecordProperty("first_failure", failure.type + ": " + failure.message);
    if (GetParam() == "shm") {
        // shm never tells of what it has already taken; what it has not is failed.
        ASSERT_TRUE(writer.calls.wait_failures(100, 10 * kPostDeadline));
    } else {
        ASSERT_TRUE(writer.calls.wait_settled(kMany, 10 * kPostDeadline));
    }
    writer.endpoint.remove_peer(first_id);

    PeerProcess second(GetParam());
    const PeerId second_id = writer.endpoint.add_peer(second.address());
    const auto failures_before = writer.calls.failures().size();
    writer.push(second, second_id, 3);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(second.wait_arrival(5s))
            << (writer.calls.failures().size() > failures_before ? writer.calls.failures().back().message
                                                                 : "no failure reported");
    }
    EXPECT_EQ(second.finish(), 0);
}

TEST_P(WithLostPeers, AStoppedPeerFailsTheWritesThatNobodyTakesWithATimeout) {
    Writer writer(GetParam());
    PeerProcess peer(GetParam());
    const PeerId id = writer.endpoint.add_peer(peer.address());
    writer.push(peer, id, 1);
    ASSERT_TRUE(peer.wait_arrival(20s));
    peer.send_signal(SIGSTOP);
    writer.push(peer, id, 4000);
    const bool told = writer.calls.wait_failures(1, 20 * kPostDeadline);
    if (!told && GetParam() == "shm") GTEST_SKIP() << kHeldLock;
    ASSERT_TRUE(told);
    EXPECT_EQ(writer.calls.failures()[0].type, "Timeout") << writer.calls.failures()[0].message;
    EXPECT_NE(writer.calls.failures()[0].message.find("0.5 s"), std::string::npos);
}

TEST_P(WithLostPeers, WrittenMeansLandedSoThatAWriteToAStoppedPeerIsNotUntilItGoesOn) {
    Writer writer(GetParam(), 60s);
    if (!writer.fabric.delivery_complete()) GTEST_SKIP() << GetParam() << " cannot tell that a write has landed";
    PeerProcess peer(GetParam());
    const PeerId id = writer.endpoint.add_peer(peer.address());
    writer.push(peer, id, 1);
    ASSERT_TRUE(peer.wait_arrival(20s));
    ASSERT_TRUE(writer.calls.wait_done(1, 20s));
    peer.send_signal(SIGSTOP);
    std::this_thread::sleep_for(50ms);
    writer.push(peer, id, 1, 100);  // few enough to fit every buffer on the way
    EXPECT_FALSE(writer.calls.wait_settled(2, 300ms));
    peer.send_signal(SIGCONT);
    EXPECT_TRUE(peer.wait_arrival(20s));
    EXPECT_TRUE(writer.calls.wait_done(2, 20s));
}

TEST_P(WithLostPeers, AWriteThatAStoppedPeerHasTakenFailsByTheDeadlineAndThePeerMayComeBack) {
    Writer writer(GetParam());
    if (!writer.fabric.delivery_complete()) GTEST_SKIP() << GetParam() << " cannot tell that a write has landed";
    PeerProcess peer(GetParam());
    const PeerId id = writer.endpoint.add_peer(peer.address());
    writer.push(peer, id, 1);
    ASSERT_TRUE(peer.wait_arrival(20s));
    ASSERT_TRUE(writer.calls.wait_done(1, 20s));
    peer.send_signal(SIGSTOP);
    std::this_thread::sleep_for(50ms);
    writer.push(peer, id, 1, 100);
    const bool told = writer.calls.wait_failures(1, 20 * kPostDeadline);
    if (!told && GetParam() == "shm") GTEST_SKIP() << kHeldLock;
    ASSERT_TRUE(told);
    EXPECT_EQ(writer.calls.failures()[0].type, "Timeout") << writer.calls.failures()[0].message;
    peer.send_signal(SIGCONT);
    EXPECT_TRUE(peer.wait_arrival(20s));  // of the write that has been given up
    for (int i = 0; i < 20 && writer.calls.written().size() < 2; ++i) {
        writer.push(peer, id, 1, 100);
        std::this_thread::sleep_for(100ms);
    }
    EXPECT_GE(writer.calls.written().size(), 2u);
    EXPECT_EQ(writer.calls.written().count(1), 0u) << "a write is written or has failed, not both";
}

TEST_P(WithLostPeers, AfterAKilledPeerClosingIsPromptAndANewEndpointWorksWhateverStateThePeerWasIn) {
    for (int round = 0; round < 3; ++round) {
        auto writer = std::make_unique<Writer>(GetParam());
        PeerProcess peer(GetParam());
        writer->push(peer, writer->endpoint.add_peer(peer.address()), 2000);
        const bool arrived = peer.wait_arrival(20s);
        // Seen under load, before anybody was killed in this round, and not understood.
        if (!arrived && GetParam() == "shm") GTEST_SKIP() << "shm delivered nothing for 20 s";
        ASSERT_TRUE(arrived);
        peer.kill_now();
        std::this_thread::sleep_for(50ms);
        const auto start = Clock::now();
        writer.reset();
        EXPECT_LT(Clock::now() - start, 5s);
    }
    Writer writer(GetParam());
    PeerProcess peer(GetParam());
    writer.push(peer, writer.endpoint.add_peer(peer.address()), 3);
    EXPECT_TRUE(peer.wait_arrival(20s));
    EXPECT_EQ(peer.finish(), 0);
}

struct Reader {
    explicit Reader(const std::string& provider)
        : fabric({.provider = provider}),
          buffer(kPeerArenaBytes),
          region(fabric, buffer.span()),
          endpoint(fabric, calls) {}

    Fabric fabric;
    Buffer buffer;
    MemoryRegion region;
    Recorder calls;
    Endpoint endpoint;
};

TEST_P(WithLostPeers, AWriterKilledInMidWriteLeavesTheReaderWorking) {
    if (GetParam() == "tcp;ofi_rxm" && fabric_version() >= "2.")
        GTEST_SKIP() << "rxm of libfabric " << fabric_version()
                     << " crashes when a writer is killed in mid-write (rxm_handle_comp_error); docs/fabric.md says so";
    Reader reader(GetParam());
    std::size_t arrived = 0;
    for (int round = 0; round < 5; ++round) {
        PeerProcess writer(GetParam());
        writer.stream_to(reader.endpoint.address(), reader.region.remote());
        const bool works = reader.calls.wait_arrivals(arrived + 20, GetParam() == "shm" ? 5s : 20s);
        if (!works && GetParam() == "shm") GTEST_SKIP() << "round " << round << ": " << kHeldLock;
        ASSERT_TRUE(works) << "round " << round;
        writer.kill_now();
        std::this_thread::sleep_for(20ms);
        arrived = reader.calls.arrived();
    }
}

TEST_P(WithLostPeers, AReaderThatClosesInMidWriteClosesCleanly) {
    for (int round = 0; round < 5; ++round) {
        PeerProcess writer(GetParam());
        Reader reader(GetParam());  // after the writer, so that it closes while the writer still writes
        writer.stream_to(reader.endpoint.address(), reader.region.remote());
        ASSERT_TRUE(reader.calls.wait_arrivals(20, 20s)) << "round " << round;
    }
}

TEST_P(WithLostPeers, NoFileOfADeadProcessIsLeftOnceAnotherOneHasOpenedTheFabric) {
    if (GetParam() != "shm") GTEST_SKIP() << "only shm keeps files in /dev/shm";
    PeerProcess killed("shm");
    PeerProcess living("shm");
    const pid_t killed_pid = killed.pid();
    const pid_t living_pid = living.pid();
    killed.kill_now();
    EXPECT_EQ(shm_files(living_pid), 1);
    const Fabric tidies({.provider = "shm"});
    EXPECT_EQ(shm_files(killed_pid), 0);
    EXPECT_EQ(shm_files(living_pid), 1) << "a living process's file is none of ours to remove";
    EXPECT_EQ(living.finish(), 0);
    EXPECT_EQ(shm_files(living_pid), 0);
}

INSTANTIATE_TEST_SUITE_P(LostPeer, WithLostPeers, ::testing::ValuesIn(tested_providers()), provider_test_name);

}  // namespace
}  // namespace lynx::testing
