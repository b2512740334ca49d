#include "stream/arena.hpp"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lynx/error.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

TEST(Arena, GivesBlocksThatDoNotOverlapAndTakesThemBack) {
    constexpr std::size_t kBytes = 1u << 20;
    Arena arena(kBytes);
    std::mt19937 random(1);
    struct Held {
        std::size_t bytes;
        ArenaBlock block;
    };
    std::map<std::size_t, Held> held;  // by offset
    for (int step = 0; step < 5000; ++step) {
        if (held.size() < 20 && random() % 2 == 0) {
            const std::size_t bytes = random() % 60'000;
            try {
                ArenaBlock block = arena.allocate(bytes);
                const std::size_t at = block.offset();
                EXPECT_LE(at + bytes, kBytes);
                EXPECT_EQ(at % 4096, 0u);
                const auto next = held.lower_bound(at);
                if (next != held.end()) {
                    EXPECT_LE(at + bytes, next->first);
                }
                if (next != held.begin()) {
                    EXPECT_GE(at, std::prev(next)->first + std::prev(next)->second.bytes);
                }
                held.emplace(at, Held{bytes, std::move(block)});
            } catch (const ArenaFull&) {
                EXPECT_GT(held.size(), 5u) << "full while nearly empty";
            }
        } else if (!held.empty()) {
            held.erase(std::next(held.begin(), static_cast<long>(random() % held.size())));
        }
    }
    held.clear();
    EXPECT_EQ(arena.free_bytes(), kBytes);
    EXPECT_EQ(arena.allocate(kBytes).offset(), 0u) << "after everything is back it is one piece again";
}

TEST(Arena, UsesTheLastBytesOfAnArenaThatIsNotWholePages) {
    Arena arena(5000);
    const ArenaBlock all = arena.allocate(5000);
    EXPECT_EQ(all.offset(), 0u);
    EXPECT_THROW((void)arena.allocate(1), ArenaFull);
}

TEST(Arena, SaysWhatWasAskedAndWhatIsFree) {
    Arena arena(8192);
    const ArenaBlock half = arena.allocate(4096);
    try {
        (void)arena.allocate(5000);
        FAIL();
    } catch (const ArenaFull& e) {
        const std::string text = e.what();
        for (const char* part : {"5000", "8192", "4096", "arena_bytes"})
            EXPECT_NE(text.find(part), std::string::npos) << text;
    }
}

TEST(Arena, KeepsABlockThatAStrangerMayStillWriteTo) {
    Arena arena(8192);
    {
        arena.allocate(4096).keep();
    }
    EXPECT_EQ(arena.free_bytes(), 4096u);
}

TEST(Arena, ServesThoseWhoWaitInTurn) {
    Arena arena(16384);
    std::optional<ArenaBlock> all = arena.allocate(16384);
    std::mutex mutex;
    std::vector<int> served;
    const auto waits = [&](std::size_t bytes, int name, std::uint64_t turn) {
        return std::async(std::launch::async, [&, bytes, name, turn] {
            const auto block = arena.wait(bytes, turn, Deadline::after(10s));
            const std::lock_guard lock(mutex);
            served.push_back(block ? name : -1);
        });
    };
    const std::uint64_t first = arena.next_turn(), second = arena.next_turn(), third = arena.next_turn();
    // Whatever order they come back in after a pause: the turn counts. Each needs all of it.
    auto c = waits(16384, 3, third);
    auto b = waits(16384, 2, second);
    auto a = waits(16384, 1, first);
    while (true) {
        try {
            (void)arena.allocate(1);
            FAIL();
        } catch (const ArenaFull& e) {
            if (std::string(e.what()).find("3 others wait") != std::string::npos) break;
        }
        std::this_thread::sleep_for(1ms);
    }
    all.reset();
    a.get(), b.get(), c.get();
    EXPECT_EQ(served, (std::vector{1, 2, 3}));
    EXPECT_EQ(arena.free_bytes(), 16384u);
}

TEST(Arena, LetsNothingOvertakeALargeOneThatWaits) {
    Arena arena(16384);
    std::optional<ArenaBlock> half = arena.allocate(8192);
    auto large = std::async(std::launch::async,
                            [&] { return arena.wait(16384, arena.next_turn(), Deadline::after(10s)).has_value(); });
    std::string refusal;
    while (refusal.empty()) {  // until it waits
        try {
            (void)arena.allocate(4096);
        } catch (const ArenaFull& e) {
            refusal = e.what();
        }
    }
    EXPECT_NE(refusal.find("come first"), std::string::npos) << refusal;
    EXPECT_FALSE(arena.wait(4096, arena.next_turn(), Deadline::after(20ms)));
    half.reset();
    EXPECT_TRUE(large.get());
    EXPECT_NO_THROW((void)arena.allocate(4096)) << "nobody waits any more";
}

TEST(Arena, RefusesAtOnceToWaitForWhatCouldNeverFit) {
    Arena arena(8192);
    const auto begin = Clock::now();
    EXPECT_THROW((void)arena.wait(8193, arena.next_turn(), Deadline::after(10s)), ArenaFull);
    EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(Arena, EndsAWaitByWhatItsCallerThrows) {
    Arena arena(8192);
    const ArenaBlock all = arena.allocate(8192);
    EXPECT_THROW((void)arena.wait(1, arena.next_turn(), Deadline::after(10s), [] { throw PeerLost("gone"); }),
                 PeerLost);
    EXPECT_THROW((void)arena.allocate(1), ArenaFull);
}

TEST(Arena, RefusesSizesNearTheEndOfTheAddressSpace) {
    Arena arena(8192);
    EXPECT_THROW((void)arena.allocate(~std::size_t{0}), ArenaFull);
    EXPECT_EQ(arena.free_bytes(), 8192u);
}

TEST(Arena, ABlockMayBeGivenBackLater) {
    Arena arena(8192);
    ArenaBlock later = arena.allocate(4096);
    later.give_back_after(std::chrono::milliseconds(50));
    EXPECT_FALSE(later.taken());
    EXPECT_EQ(arena.free_bytes(), 4096u);
    const auto room = arena.wait(8192, arena.next_turn(), Deadline::after(std::chrono::seconds(10)));
    EXPECT_TRUE(room) << "who waits gets it then";
}

}  // namespace
}  // namespace lynx
