// A rail that stalls in the middle of writes, which are given up and made again over another one, and heals later:
// where those writes may land until then is nobody else's memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "faulty/faulty_fabric.hpp"
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

    faulty::FaultyFabric fabric;
    Node prefill = node(kStalling), decode = node(3);
    Link link = connect(prefill, decode);
    TestCache cache{2, 1, 500, 64};
};

TEST_F(StalledRail, WhatWasGivenUpOnItNeverLandsInAnothersMemory) {
    fabric.stall(kStalling);
    transfer(1);
    // Whoever comes next would be given the same memory.
    std::this_thread::sleep_for(100ms);
    const PlaneReceiver next(decode, cache.manifest(2));
    std::ranges::fill(next.state()->memory(), std::byte{42});
    fabric.heal(kStalling);
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

}  // namespace
}  // namespace lynx::testing
