#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "fabric/providers_for_tests.hpp"
#include "fabric/recorder.hpp"
#include "lynx/buffer.hpp"
#include "lynx/error.hpp"
#include "lynx/fabric.hpp"

namespace lynx::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

/// One end: a fabric, an arena, an endpoint.
struct Node {
    explicit Node(const std::string& provider, std::size_t bytes = 1 << 16, const EndpointOptions& options = {})
        : fabric({.provider = provider}),
          buffer(bytes),
          region(fabric, buffer.span()),
          endpoint(fabric, calls, options) {}

    Write write_to(const Node& other, PeerId peer, std::size_t offset, std::size_t bytes, std::uint32_t tag) const {
        return {.source = buffer.span().subspan(offset, bytes),
                .descriptor = region.descriptor(),
                .peer = peer,
                .remote_address = other.region.remote().address + offset,
                .remote_key = other.region.remote().key,
                .tag = tag,
                .cookie = 1000 + std::uint64_t{tag}};
    }
    void fill(unsigned seed) {
        std::minstd_rand random(seed);
        for (auto& byte : buffer.span()) byte = static_cast<std::byte>(random() >> 8);
    }

    Fabric fabric;
    Buffer buffer;
    MemoryRegion region;
    Recorder calls;
    Endpoint endpoint;
};

bool same_bytes(const Node& a, const Node& b, std::size_t offset, std::size_t bytes) {
    return std::ranges::equal(a.buffer.span().subspan(offset, bytes), b.buffer.span().subspan(offset, bytes));
}

std::string first_failure(const Recorder& calls) {
    const auto failures = calls.failures();
    return failures.empty() ? "none failed" : failures[0].type + ": " + failures[0].message;
}

using OnEachProvider = EachProvider;

TEST_P(OnEachProvider, AWriteBringsItsBytesAndItsTagAndNothingBesides) {
    Node sender(GetParam());
    Node receiver(GetParam());
    sender.fill(1);
    const PeerId peer = sender.endpoint.add_peer(receiver.endpoint.address());
    sender.calls.push(sender.write_to(receiver, peer, 100, 5000, 0xFFFFFFFFu));
    sender.endpoint.wake();
    ASSERT_TRUE(receiver.calls.wait_arrivals(1, kPatience)) << first_failure(sender.calls);
    ASSERT_TRUE(sender.calls.wait_done(1, kPatience)) << first_failure(sender.calls);
    EXPECT_TRUE(same_bytes(sender, receiver, 100, 5000));
    EXPECT_TRUE(std::ranges::all_of(receiver.buffer.span().first(100), [](auto b) { return b == std::byte{0}; }));
    EXPECT_TRUE(std::ranges::all_of(receiver.buffer.span().subspan(5100), [](auto b) { return b == std::byte{0}; }));
    EXPECT_EQ(receiver.calls.arrivals(), (std::map<std::uint32_t, int>{{0xFFFFFFFFu, 1}}));
    EXPECT_EQ(sender.calls.written(), (std::map<std::uint64_t, int>{{1000 + 0xFFFFFFFFull, 1}}));
    EXPECT_TRUE(sender.calls.arrivals().empty());
    EXPECT_TRUE(receiver.calls.written().empty());
}

TEST_P(OnEachProvider, SizesFromOneByteToFourMebibytesArriveWhole) {
    constexpr std::size_t kBytes = 4 << 20;
    Node sender(GetParam(), kBytes);
    Node receiver(GetParam(), kBytes);
    const PeerId peer = sender.endpoint.add_peer(receiver.endpoint.address());
    std::uint32_t tag = 0;
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{63}, std::size_t{4096}, std::size_t{65537}, kBytes - 1, kBytes}) {
        sender.fill(tag + 7);
        sender.calls.push(sender.write_to(receiver, peer, 0, bytes, tag));
        sender.endpoint.wake();
        ++tag;
        ASSERT_TRUE(receiver.calls.wait_arrivals(tag, kPatience)) << bytes << " bytes; " << first_failure(sender.calls);
        ASSERT_TRUE(sender.calls.wait_done(tag, kPatience)) << bytes << " bytes";
        EXPECT_TRUE(same_bytes(sender, receiver, 0, bytes)) << bytes << " bytes";
    }
}

TEST_P(OnEachProvider, ThousandsOfWritesGoThroughFullQueuesBothWaysEachOnce) {
    constexpr std::uint32_t kWrites = 5000;
    constexpr std::size_t kBytes = 512;
    Node a(GetParam(), kWrites * kBytes);
    Node b(GetParam(), kWrites * kBytes);
    a.fill(3);
    const PeerId to_b = a.endpoint.add_peer(b.endpoint.address());
    const PeerId to_a = b.endpoint.add_peer(a.endpoint.address());
    // b writes its first half back to a's second, so that both directions are full at once.
    Buffer replies(kWrites * kBytes);
    MemoryRegion replies_region(a.fabric, replies.span());
    for (std::uint32_t i = 0; i < kWrites; ++i) {
        a.calls.push(a.write_to(b, to_b, i * kBytes, kBytes, i));
        Write reply = b.write_to(a, to_a, i * kBytes, kBytes, i);
        reply.remote_address = replies_region.remote().address + i * kBytes;
        reply.remote_key = replies_region.remote().key;
        b.calls.push(reply);
    }
    a.endpoint.wake();
    b.endpoint.wake();
    ASSERT_TRUE(b.calls.wait_arrivals(kWrites, kPatience)) << first_failure(a.calls);
    ASSERT_TRUE(a.calls.wait_arrivals(kWrites, kPatience)) << first_failure(b.calls);
    ASSERT_TRUE(a.calls.wait_done(kWrites, kPatience));
    ASSERT_TRUE(b.calls.wait_done(kWrites, kPatience));
    EXPECT_TRUE(same_bytes(a, b, 0, kWrites * kBytes));
    for (const auto* calls : {&a.calls, &b.calls}) {
        const auto arrivals = calls->arrivals();
        const auto written = calls->written();
        EXPECT_EQ(arrivals.size(), kWrites);
        EXPECT_EQ(written.size(), kWrites);
        EXPECT_TRUE(std::ranges::all_of(arrivals, [](const auto& each) { return each.second == 1; }));
        EXPECT_TRUE(std::ranges::all_of(written, [](const auto& each) { return each.second == 1; }));
        EXPECT_TRUE(calls->failures().empty());
    }
}

TEST_P(OnEachProvider, TheFirstWriteAfterAnIdleSecondWorksAndIdlingCostsLittle) {
    Node sender(GetParam());
    Node receiver(GetParam());
    const PeerId peer = sender.endpoint.add_peer(receiver.endpoint.address());
    sender.calls.push(sender.write_to(receiver, peer, 0, 100, 1));
    sender.endpoint.wake();
    ASSERT_TRUE(receiver.calls.wait_arrivals(1, kPatience)) << first_failure(sender.calls);
    std::this_thread::sleep_for(200ms);
    const auto cpu_seconds = [] {
        rusage used{};
        getrusage(RUSAGE_SELF, &used);
        const auto s = [](const timeval& t) {
            return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
        };
        return s(used.ru_utime) + s(used.ru_stime);
    };
    const double before = cpu_seconds();
    std::this_thread::sleep_for(1s);
    const double each = (cpu_seconds() - before) / 2;
    RecordProperty("idle_cpu_percent_of_a_core", std::to_string(100 * each));
    // The aim is 3 %; sanitizers and busy machines take more. What must not be is a core that spins.
    EXPECT_LT(each, 0.25);
    sender.calls.push(sender.write_to(receiver, peer, 0, 100, 2));
    sender.endpoint.wake();
    ASSERT_TRUE(receiver.calls.wait_arrivals(2, kPatience)) << first_failure(sender.calls);
    EXPECT_EQ(receiver.calls.arrivals().count(2), 1u);
}

TEST_P(OnEachProvider, WritesHeldBackByPacingGoOutAtTheTimeSet) {
    Node sender(GetParam());
    Node receiver(GetParam());
    const PeerId peer = sender.endpoint.add_peer(receiver.endpoint.address());
    const auto at = Clock::now() + 150ms;
    sender.calls.hold_until(at);
    sender.calls.push(sender.write_to(receiver, peer, 0, 100, 1));
    sender.endpoint.wake();
    ASSERT_TRUE(receiver.calls.wait_arrivals(1, kPatience)) << first_failure(sender.calls);
    EXPECT_GE(Clock::now(), at);
}

TEST_P(OnEachProvider, AWriteThatCannotBePostedFailsAndTheNextOneWorks) {
    Node sender(GetParam());
    Node receiver(GetParam());
    const PeerId peer = sender.endpoint.add_peer(receiver.endpoint.address());
    Write nobody = sender.write_to(receiver, peer + 100, 0, 100, 1);
    Write nothing = sender.write_to(receiver, peer, 0, 0, 2);
    sender.calls.push(nobody);
    sender.calls.push(nothing);
    sender.calls.push(sender.write_to(receiver, peer, 0, 100, 3));
    sender.endpoint.wake();
    ASSERT_TRUE(receiver.calls.wait_arrivals(1, kPatience));
    ASSERT_TRUE(sender.calls.wait_settled(3, kPatience));
    const auto failures = sender.calls.failures();
    ASSERT_EQ(failures.size(), 2u);
    EXPECT_EQ(failures[0].type, "FabricError");
    EXPECT_NE(failures[0].message.find("no such peer"), std::string::npos) << failures[0].message;
    EXPECT_NE(failures[1].message.find("nothing to write"), std::string::npos) << failures[1].message;
}

TEST_P(OnEachProvider, ARemovedPeerTakesNoMoreWritesAndMayBeAddedAgain) {
    Node sender(GetParam());
    Node receiver(GetParam());
    const PeerId old_peer = sender.endpoint.add_peer(receiver.endpoint.address());
    sender.endpoint.remove_peer(old_peer);
    sender.endpoint.remove_peer(old_peer);
    std::this_thread::sleep_for(20ms);
    const PeerId peer = sender.endpoint.add_peer(receiver.endpoint.address());
    EXPECT_NE(peer, old_peer);
    sender.calls.push(sender.write_to(receiver, old_peer, 0, 100, 1));
    sender.calls.push(sender.write_to(receiver, peer, 0, 100, 2));
    sender.endpoint.wake();
    ASSERT_TRUE(receiver.calls.wait_arrivals(1, kPatience)) << first_failure(sender.calls);
    EXPECT_EQ(receiver.calls.arrivals(), (std::map<std::uint32_t, int>{{2, 1}}));
    EXPECT_EQ(sender.calls.failures().size(), 1u);
}

TEST_P(OnEachProvider, AMalformedAddressIsRefused) {
    Node node(GetParam());
    auto address = node.endpoint.address();
    EXPECT_THROW((void)node.endpoint.add_peer({}), FabricError);
    EXPECT_THROW((void)node.endpoint.add_peer(ConstByteSpan(address).first(address.size() - 1)), FabricError);
    address[1] = std::byte{'X'};
    try {
        (void)node.endpoint.add_peer(address);
        FAIL() << "an address of another provider was taken";
    } catch (const FabricError& error) {
        EXPECT_NE(std::string(error.what()).find("choose the same one on both sides"), std::string::npos)
            << error.what();
    }
}

TEST_P(OnEachProvider, ClosingWithWritesOutstandingEndsPromptlyAndQuietly) {
    Node receiver(GetParam(), 8 << 20);
    const auto start = Clock::now();
    {
        Node sender(GetParam(), 8 << 20);
        const PeerId peer = sender.endpoint.add_peer(receiver.endpoint.address());
        for (std::uint32_t i = 0; i < 500; ++i) sender.calls.push(sender.write_to(receiver, peer, 0, 1 << 20, i));
        sender.endpoint.wake();
        ASSERT_TRUE(receiver.calls.wait_arrivals(1, kPatience)) << first_failure(sender.calls);
    }
    EXPECT_LT(Clock::now() - start, 10s);
}

TEST_P(OnEachProvider, LeavesNothingInShm) {
    const int before = shm_files(getpid());
    {
        Node a(GetParam());
        Node b(GetParam());
        (void)a.endpoint.add_peer(b.endpoint.address());
        if (GetParam() == "shm") {
            EXPECT_EQ(shm_files(getpid()), before + 2);
        }
    }
    EXPECT_EQ(shm_files(getpid()), before);
}

TEST_P(OnEachProvider, RefusesToRegisterNothing) {
    const Fabric fabric({.provider = GetParam()});
    EXPECT_THROW(MemoryRegion(fabric, {}), InvalidArgument);
}

TEST_P(OnEachProvider, RegionsHaveKeysOfTheirOwn) {
    const Fabric fabric({.provider = GetParam()});
    Buffer buffer(8192);
    const MemoryRegion first(fabric, buffer.span().first(4096));
    const MemoryRegion second(fabric, buffer.span().subspan(4096));
    EXPECT_NE(first.remote().key, second.remote().key);
    EXPECT_EQ(first.remote().bytes, 4096u);
}

INSTANTIATE_TEST_SUITE_P(Endpoint, OnEachProvider, ::testing::ValuesIn(tested_providers()), provider_test_name);

}  // namespace
}  // namespace lynx::testing
