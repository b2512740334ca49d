#include "stream/arena.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lynx/error.hpp"

namespace lynx {
namespace {

TEST(Arena, GivesBlocksThatDoNotOverlapAndTakesThemBack) {
    constexpr std::size_t kBytes = 1u << 20;
    Arena arena(kBytes);
    std::mt19937 random(1);
    std::map<std::size_t, std::size_t> held;  // offset -> bytes
    for (int step = 0; step < 5000; ++step) {
        if (held.size() < 20 && random() % 2 == 0) {
            const std::size_t bytes = random() % 60'000;
            try {
                const std::size_t at = arena.allocate(bytes);
                EXPECT_LE(at + bytes, kBytes);
                EXPECT_EQ(at % 4096, 0u);
                const auto next = held.lower_bound(at);
                if (next != held.end()) {
                    EXPECT_LE(at + bytes, next->first);
                }
                if (next != held.begin()) {
                    EXPECT_GE(at, std::prev(next)->first + std::prev(next)->second);
                }
                held.emplace(at, bytes);
            } catch (const ArenaFull&) {
                EXPECT_GT(held.size(), 5u) << "full while nearly empty";
            }
        } else if (!held.empty()) {
            const auto it = std::next(held.begin(), static_cast<long>(random() % held.size()));
            arena.release(it->first);
            held.erase(it);
        }
    }
    for (const auto& [at, bytes] : held) arena.release(at);
    EXPECT_EQ(arena.free_bytes(), kBytes);
    EXPECT_EQ(arena.allocate(kBytes), 0u) << "after everything is back it is one piece again";
}

TEST(Arena, UsesTheLastBytesOfAnArenaThatIsNotWholePages) {
    Arena arena(5000);
    EXPECT_EQ(arena.allocate(5000), 0u);
    EXPECT_THROW((void)arena.allocate(1), ArenaFull);
}

TEST(Arena, SaysWhatWasAskedAndWhatIsFree) {
    Arena arena(8192);
    (void)arena.allocate(4096);
    try {
        (void)arena.allocate(5000);
        FAIL();
    } catch (const ArenaFull& e) {
        const std::string text = e.what();
        for (const char* part : {"5000", "8192", "4096", "arena_bytes"})
            EXPECT_NE(text.find(part), std::string::npos) << text;
    }
}

TEST(Arena, RefusesSizesNearTheEndOfTheAddressSpace) {
    Arena arena(8192);
    EXPECT_THROW((void)arena.allocate(~std::size_t{0}), ArenaFull);
    EXPECT_EQ(arena.free_bytes(), 8192u);
}

}  // namespace
}  // namespace lynx
