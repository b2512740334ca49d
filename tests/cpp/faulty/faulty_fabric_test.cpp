#include "faulty/faulty_fabric.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <string>
#include <thread>

#include "fabric/recorder.hpp"
#include "lynx/buffer.hpp"

namespace lynx::faulty {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;
constexpr std::size_t kBytes = 64 << 10;
constexpr std::size_t kWrite = 64;

struct End {
    End(const FaultyFabric& faulty, std::uint64_t stream, const EndpointOptions& options = {})
        : fabric(faulty.node(stream)),
          buffer(kBytes),
          region(fabric, buffer.span()),
          endpoint(fabric, calls, options) {}

    Write write(const RemoteRegion& to, PeerId peer, std::uint32_t tag) const {
        return {.source = buffer.span().subspan(tag * kWrite, kWrite),
                .descriptor = region.descriptor(),
                .peer = peer,
                .remote_address = to.address + tag * kWrite,
                .remote_key = to.key,
                .tag = tag,
                .cookie = tag};
    }

    Fabric fabric;
    Buffer buffer;
    MemoryRegion region;
    testing::Recorder calls;
    Endpoint endpoint;
};

/// A writer and a reader, and writes 0 to `count` from one to the other.
struct Pair {
    explicit Pair(const FaultOptions& options, const EndpointOptions& endpoint = {})
        : faulty(options), writer(faulty, 1, endpoint), reader(faulty, 2) {
        std::ranges::fill(writer.buffer.span(), std::byte{7});
        peer = writer.endpoint.add_peer(reader.endpoint.address());
    }
    void send(std::uint32_t first, std::uint32_t count) {
        for (std::uint32_t i = first; i < first + count; ++i)
            writer.calls.push(writer.write(reader.region.remote(), peer, i));
        writer.endpoint.wake();
    }
    [[nodiscard]] std::size_t landed() const {
        return static_cast<std::size_t>(std::ranges::count(reader.buffer.span(), std::byte{7}));
    }
    [[nodiscard]] int wrong_bits(std::uint32_t tag) const {
        int bits = 0;
        for (const std::byte byte : reader.buffer.span().subspan(tag * kWrite, kWrite))
            bits += std::popcount(std::to_integer<unsigned>(byte ^ std::byte{7}));
        return bits;
    }

    FaultyFabric faulty;
    End writer;
    End reader;
    PeerId peer = 0;
};

TEST(FaultyFabric, WithoutFaultsEveryWriteLandsOnceAndIsReportedOnce) {
    Pair pair{FaultOptions{}};
    pair.send(0, 1000);
    ASSERT_TRUE(pair.reader.calls.wait_arrivals(1000, kPatience));
    ASSERT_TRUE(pair.writer.calls.wait_done(1000, kPatience));
    EXPECT_EQ(pair.landed(), 1000 * kWrite);
    EXPECT_EQ(pair.reader.calls.arrivals().size(), 1000u);
    EXPECT_EQ(pair.writer.calls.written().size(), 1000u);
    EXPECT_TRUE(pair.faulty.trace().empty());
    EXPECT_EQ(pair.faulty.counts().landed, 1000u);
}

TEST(FaultyFabric, ADroppedWriteIsReportedAndNothingLands) {
    Pair pair(FaultOptions::only(Fault::kDrop));
    pair.send(0, 10);
    ASSERT_TRUE(pair.writer.calls.wait_done(10, kPatience));
    EXPECT_EQ(pair.reader.calls.arrived(), 0u);
    EXPECT_EQ(pair.landed(), 0u);
}

TEST(FaultyFabric, ADelayedWriteLandsWithinTheLongestDelayAndIsReportedThen) {
    FaultOptions options = FaultOptions::only(Fault::kDelay);
    options.longest_delay = 100ms;
    Pair pair(options);
    const auto start = Clock::now();
    pair.send(0, 20);
    ASSERT_TRUE(pair.writer.calls.wait_done(20, kPatience));
    EXPECT_GT(Clock::now() - start, 20ms);
    ASSERT_TRUE(pair.reader.calls.wait_arrivals(20, kPatience));
    EXPECT_EQ(pair.landed(), 20 * kWrite);
}

TEST(FaultyFabric, AReorderedWriteLandsAfterLaterOnes) {
    // Some seed has the first write reordered and the next four not.
    FaultOptions options = FaultOptions::only(Fault::kReorder, 0.2);
    options.longest_delay = 10s;
    const auto is_hit = [&](std::uint32_t tag) {
        return decide(options, {.stream = 1, .tag = tag, .offset = tag * kWrite}) == Fault::kReorder;
    };
    while (!is_hit(0) || is_hit(1) || is_hit(2) || is_hit(3) || is_hit(4)) ++options.seed;
    Pair pair(options);
    pair.send(0, 1);
    EXPECT_FALSE(pair.reader.calls.wait_arrivals(1, 50ms));
    pair.send(1, 4);
    ASSERT_TRUE(pair.reader.calls.wait_arrivals(5, 5s));
    EXPECT_EQ(pair.faulty.counts().of(Fault::kReorder), 1u);
}

TEST(FaultyFabric, ADoubleLandsAndArrivesTwiceAndIsReportedOnce) {
    Pair pair(FaultOptions::only(Fault::kDuplicate));
    pair.send(0, 10);
    ASSERT_TRUE(pair.reader.calls.wait_arrivals(20, kPatience));
    EXPECT_EQ(pair.landed(), 10 * kWrite);
    for (const auto& [tag, times] : pair.reader.calls.arrivals()) EXPECT_EQ(times, 2) << tag;
    for (const auto& [cookie, times] : pair.writer.calls.written()) EXPECT_EQ(times, 1) << cookie;
}

TEST(FaultyFabric, ACorruptedWriteHasOneWrongBitAndItsSourceNone) {
    Pair pair(FaultOptions::only(Fault::kCorrupt));
    pair.send(0, 10);
    ASSERT_TRUE(pair.reader.calls.wait_arrivals(10, kPatience));
    for (std::uint32_t tag = 0; tag < 10; ++tag) EXPECT_EQ(pair.wrong_bits(tag), 1) << tag;
    EXPECT_TRUE(std::ranges::all_of(pair.writer.buffer.span(), [](auto b) { return b == std::byte{7}; }));
}

TEST(FaultyFabric, ARefusedWriteGoesThroughLaterOrFailsByTheDeadline) {
    Pair some(FaultOptions::only(Fault::kRefuse, 0.5));
    some.send(0, 100);
    ASSERT_TRUE(some.reader.calls.wait_arrivals(100, kPatience));
    EXPECT_GT(some.faulty.counts().of(Fault::kRefuse), 20u);

    Pair all(FaultOptions::only(Fault::kRefuse), {.post_deadline = 50ms});
    all.send(0, 1);
    ASSERT_TRUE(all.writer.calls.wait_failures(1, kPatience));
    EXPECT_EQ(all.writer.calls.failures()[0].type, "Timeout");
}

TEST(FaultyFabric, AKilledLinkIsDeadUntilThePeerIsAddedAnew) {
    // Some seed kills the first write and none of the next ten.
    FaultOptions options = FaultOptions::only(Fault::kKill, 0.1);
    const auto is_hit = [&](std::uint32_t tag) {
        return decide(options, {.stream = 1, .tag = tag, .offset = tag * kWrite}) == Fault::kKill;
    };
    const auto any_later = [&] {
        bool any = false;
        for (std::uint32_t tag = 1; tag < 11; ++tag) any |= is_hit(tag);
        return any;
    };
    while (!is_hit(0) || any_later()) ++options.seed;
    Pair pair(options);
    pair.send(0, 6);
    ASSERT_TRUE(pair.writer.calls.wait_failures(6, kPatience));
    for (const auto& failure : pair.writer.calls.failures()) EXPECT_EQ(failure.type, "PeerLost");
    pair.writer.endpoint.remove_peer(pair.peer);
    pair.peer = pair.writer.endpoint.add_peer(pair.reader.endpoint.address());
    pair.send(6, 5);
    ASSERT_TRUE(pair.reader.calls.wait_arrivals(5, kPatience));
    EXPECT_EQ(pair.landed(), 5 * kWrite);
}

TEST(FaultyFabric, AKeyOpensItsRegionUntilThatIsDestroyed) {
    Pair pair{FaultOptions{}};
    Buffer memory(kBytes);
    RemoteRegion slot;
    {
        const MemoryRegion region(pair.reader.fabric, memory.span());
        slot = region.remote();
        pair.writer.calls.push(pair.writer.write(slot, pair.peer, 1));
        pair.writer.endpoint.wake();
        ASSERT_TRUE(pair.reader.calls.wait_arrivals(1, kPatience));
    }
    pair.writer.calls.push(pair.writer.write(slot, pair.peer, 2));
    Write beyond = pair.writer.write(pair.reader.region.remote(), pair.peer, 3);
    beyond.remote_address = kBytes - kWrite + 1;
    pair.writer.calls.push(beyond);
    const MemoryRegion local(pair.reader.fabric, memory.span(), MemoryAccess::kLocal);
    EXPECT_EQ(local.remote().key, 0u);
    pair.writer.endpoint.wake();
    ASSERT_TRUE(pair.writer.calls.wait_failures(2, kPatience));
    for (const auto& failure : pair.writer.calls.failures()) EXPECT_EQ(failure.type, "PeerLost") << failure.message;
    EXPECT_EQ(std::ranges::count(memory.span(), std::byte{7}), static_cast<std::ptrdiff_t>(kWrite));
    EXPECT_EQ(pair.landed(), 0u);
    EXPECT_EQ(pair.faulty.counts().rejected, 2u);
}

TEST(FaultyFabric, ALateDoubleDoesNotLandInARegionThatIsGone) {
    FaultOptions options = FaultOptions::only(Fault::kDuplicate);
    options.longest_delay = 200ms;
    Pair pair(options);
    Buffer memory(kBytes);
    {
        const MemoryRegion region(pair.reader.fabric, memory.span());
        for (std::uint32_t tag = 0; tag < 20; ++tag)
            pair.writer.calls.push(pair.writer.write(region.remote(), pair.peer, tag));
        pair.writer.endpoint.wake();
        ASSERT_TRUE(pair.writer.calls.wait_done(20, kPatience));
    }
    std::ranges::fill(memory.span(), std::byte{0});
    std::this_thread::sleep_for(300ms);
    EXPECT_TRUE(std::ranges::all_of(memory.span(), [](auto b) { return b == std::byte{0}; }));
}

TEST(FaultyFabric, WritesToAnEndpointThatHasClosedAreLost) {
    FaultyFabric faulty;
    End writer(faulty, 1);
    std::vector<std::byte> address;
    RemoteRegion remote;
    {
        const End reader(faulty, 2);
        address = reader.endpoint.address();
    }
    const Buffer memory(kBytes);
    const MemoryRegion region(writer.fabric, memory.span());
    writer.calls.push(writer.write(region.remote(), writer.endpoint.add_peer(address), 1));
    writer.endpoint.wake();
    ASSERT_TRUE(writer.calls.wait_failures(1, kPatience));
    EXPECT_EQ(writer.calls.failures()[0].type, "PeerLost");
    EXPECT_THROW((void)writer.endpoint.add_peer({}), FabricError);
    EXPECT_EQ(faulty.open_endpoints(), 1u);
}

/// A run with every fault: two writers at once, each of many writes in an order of its own.
std::vector<FaultEvent> run_with(std::uint64_t seed, bool backwards) {
    constexpr std::uint32_t kWrites = 1000;
    const FaultyFabric faulty(FaultOptions::each(0.05, seed));
    End reader(faulty, 0);
    const MemoryRegion other(reader.fabric, reader.buffer.span());
    End first(faulty, 1);
    End second(faulty, 2);
    std::size_t tried = 0;
    // One by one to a peer of its own each, so that a killed link takes no others with it.
    for (std::uint32_t i = 0; i < kWrites; ++i) {
        const std::uint32_t tag = backwards ? kWrites - 1 - i : i;
        for (End* writer : {&first, &second}) {
            const PeerId peer = writer->endpoint.add_peer(reader.endpoint.address());
            writer->calls.push(writer->write(writer == &first ? reader.region.remote() : other.remote(), peer, tag));
            writer->endpoint.wake();
        }
        ++tried;
    }
    EXPECT_TRUE(first.calls.wait_settled(tried, kPatience));
    EXPECT_TRUE(second.calls.wait_settled(tried, kPatience));
    const FaultCounts counts = faulty.counts();
    for (std::size_t i = 1; i < kFaults; ++i) EXPECT_GT(counts.faults.at(i), 20u) << "fault " << i;
    return faulty.trace();
}

TEST(FaultyFabric, TheSameSeedGivesTheSameTraceInWhateverOrderTheWritesCome) {
    const auto trace = run_with(11, false);
    EXPECT_EQ(trace, run_with(11, true));
    EXPECT_NE(trace, run_with(12, false));
}

TEST(FaultyFabric, LeavesNothingOpen) {
    FaultyFabric faulty;
    {
        const End a(faulty, 1);
        EXPECT_EQ(faulty.open_endpoints(), 1u);
        EXPECT_EQ(faulty.open_regions(), 1u);
    }
    EXPECT_EQ(faulty.open_endpoints(), 0u);
    EXPECT_EQ(faulty.open_regions(), 0u);
}

}  // namespace
}  // namespace lynx::faulty
