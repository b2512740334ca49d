// The exact tier on many random values: every kernel writes the same bytes and restores the same bits.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/random_values.hpp"
#include "lynx/codec.hpp"

namespace lynx {
namespace {

constexpr std::size_t kValues = testing::kSanitized ? 2'000'000 : 100'000'000;

TEST(ExactTierOnRandomBits, EveryKernelWritesTheSameBytesAndRestoresTheSource) {
    std::size_t values = 0;
    std::size_t coded_rounds = 0;
    for (unsigned round = 0; values < kValues; ++round) {
        const testing::RandomRound src(round);
        const PlaneLayout layout = src.layout();
        values += src.values().size();
        std::vector<std::byte> expected;
        for (const std::string_view name : Codec::available()) {
            const Codec& codec = Codec::by_name(name);
            std::vector<std::byte> coded(layout.bytes());
            codec.encode(src.view(), layout, coded);
            const std::size_t payload = codec.encode_exact(src.view(), layout, coded);
            if (expected.empty()) {
                expected = coded;
                coded_rounds += payload < layout.exact_payload().bytes / 2 ? 1 : 0;
            }
            ASSERT_TRUE(coded == expected) << name << ", round " << round;
            std::vector<std::uint16_t> out(src.values().size());
            codec.decode_exact(layout, coded, src.view_of(out));
            ASSERT_TRUE(out == src.values()) << name << ", round " << round;
        }
    }
    EXPECT_GT(coded_rounds, 0u);
    RecordProperty("values", std::to_string(values));
}

}  // namespace
}  // namespace lynx
