// A rail that stalls in the middle of writes, which are given up and made again over another one, and heals later:
// where those writes may land until then is nobody else's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "core/text.hpp"
#include "faulty/faulty_fabric.hpp"
#include "lynx/error.hpp"
#include "stream/cache.hpp"
#include "stream/links.hpp"
#include "stream/receive_state.hpp"
#include "stream/send_state.hpp"

namespace lynx::testing {
namespace {

using namespace std::chrono_literals;

struct StalledRail : ::testing::Test {
    static constexpr std::uint64_t kStalling = 1;

    [[nodiscard]] Node node(std::uint64_t stream) const {
        return Node({.fabric = {.backend = fabric.node(stream)},
                     .more_rails = {{.backend = fabric.node(stream + 1)}},
                     .arena_bytes = 4u << 20});
    }
    /// A transfer from its offer to the end of its receiver.
    void transfer(std::uint64_t request) {
        auto [sender, receiver] = open(link, cache.manifest(request));
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(1, soon()));
        link.at_decode->finish(receiver);
        ASSERT_TRUE(link.at_prefill->finish(sender, soon()));
    }
    /// Transfers until the stalled rail has got something to write: the other one may be quicker.
    void transfer_until_it_stalls() {
        fabric.stall(kStalling);
        for (std::uint64_t request = 1; fabric.half_in() == 0; ++request) {
            ASSERT_LT(request, 1000u) << "that rail is not used";
            transfer(request);
        }
    }

    faulty::FaultyFabric fabric;
    Node prefill = node(kStalling), decode = node(3);
    Link link = connect(prefill, decode);
    TestCache cache{2, 1, 500, 64};
};

TEST_F(StalledRail, WhatWasGivenUpOnItNeverLandsInAnothersMemory) {
    transfer_until_it_stalls();
    // Whoever comes next would be given the same memory.
    std::this_thread::sleep_for(100ms);
    const PlaneReceiver next(decode, cache.manifest(2000));
    std::ranges::fill(next.state()->memory(), std::byte{42});
    fabric.heal(kStalling);
    EXPECT_TRUE(std::ranges::all_of(next.state()->memory(), [](std::byte b) { return b == std::byte{42}; }));
}

TEST_F(StalledRail, WhatWasGivenUpOnItByASenderThatLeavesNeverLandsInAnothersMemory) {
    fabric.stall(kStalling);
    fabric.stall(kStalling + 1);
    {
        auto [sender, receiver] = open(link, cache.manifest(1));
        const auto send = [&, &to = sender] {
            cache.put_all(to);
            (void)to.wait_written(soon());
        };
        EXPECT_THROW(send(), Timeout);
        link.at_prefill->close();
        EXPECT_THROW((void)receiver.wait(1, soon()), Error);
    }
    link.at_decode.reset();
    for (int i = 0; i < 30; ++i) {  // longer than what is half in of a process that has ended may take
        std::this_thread::sleep_for(100ms);
        if (decode.arena_free_bytes() == decode.arena_bytes()) break;
    }
    const PlaneReceiver next(decode, cache.manifest(2));
    std::ranges::fill(next.state()->memory(), std::byte{42});
    fabric.heal(kStalling);
    fabric.heal(kStalling + 1);
    EXPECT_TRUE(std::ranges::all_of(next.state()->memory(), [](std::byte b) { return b == std::byte{42}; }));
}

TEST_F(StalledRail, ATransferWithoutOneGivesItsMemoryBack) {
    transfer(1);
    EXPECT_TRUE(becomes_free(decode));
}

TEST_F(StalledRail, WhoeverOnlyClaimsOneForAnotherTakesNoMemoryFromIt) {
    auto [sender, receiver] = open(link, cache.manifest(1));
    receiver.state()->on_arrival(0, true);  // a stranger with a grant of its own may send any tag
    cache.put_all(sender);
    ASSERT_TRUE(receiver.wait(1, soon()));
    link.at_decode->finish(receiver);
    ASSERT_TRUE(link.at_prefill->finish(sender, soon()));
    const auto let_go = [](PlaneReceiver done) { return done.complete(); };
    EXPECT_TRUE(let_go(std::move(receiver)));
    EXPECT_TRUE(becomes_free(decode));
}

TEST_F(StalledRail, ATagThatComesBeforeItsChunkWasPutEndsNeitherTheTransferNorTheLink) {
    auto [sender, receiver] = open(link, cache.manifest(1));
    receiver.state()->on_arrival(0);
    std::this_thread::sleep_for(100ms);  // it is asked for
    EXPECT_FALSE(link.at_prefill->lost());
    cache.put_all(sender);
    EXPECT_TRUE(receiver.wait(1, soon()));
    EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
    link.at_decode->finish(receiver);
    EXPECT_TRUE(link.at_prefill->finish(sender, soon()));
}

TEST_F(StalledRail, WhatIsHeldBackForItIsCountedAndNamedWhereRoomIsMissing) {
    transfer_until_it_stalls();
    for (int i = 0; i < 500 && (decode.metrics().slots_held == 0 || decode.metrics().slots_taken != 0); ++i)
        std::this_thread::sleep_for(10ms);
    const NodeMetrics metrics = decode.metrics();
    EXPECT_EQ(metrics.slots_held, 1u);
    EXPECT_EQ(metrics.held_bytes, metrics.arena_used_bytes);
    EXPECT_EQ(metrics.slots_taken, 0u);
    std::vector<PlaneReceiver> all;
    try {
        for (std::uint64_t request = 2000; request < 3000; ++request) all.emplace_back(decode, cache.manifest(request));
        ADD_FAILURE() << "never full";
    } catch (const ArenaFull& e) {
        EXPECT_NE(std::string(e.what()).find(text("1 slot of ", metrics.held_bytes, " bytes in all are held back")),
                  std::string::npos)
            << e.what();
    }
}

}  // namespace
}  // namespace lynx::testing
