// The device's functions for the exact tier on many random values: the CPU codec's bytes, and every bit back.
// 100 million of them, which take about six seconds of CPU time; two million under sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/random_values.hpp"
#include "cuda/host_codec.hpp"
#include "lynx/codec.hpp"
#include "lynx/executor.hpp"

namespace lynx {
namespace {

using testing::AlignedBytes;

constexpr std::size_t kValues = testing::kSanitized ? 2'000'000 : 100'000'000;
constexpr unsigned kRounds = (kValues + testing::kRoundValues - 1) / testing::kRoundValues;

/// Of all rounds that went well.
struct Checked {
    std::atomic<std::size_t> values = 0;
    std::atomic<std::size_t> coded = 0;  ///< of these, the ones that were not stored as they are
};

void check_round(unsigned round, Checked& checked) {
    const testing::RandomRound src(round);
    const PlaneLayout layout = src.layout();
    const Codec& reference = Codec::best();
    AlignedBytes expected(layout.bytes());
    reference.encode(src.view(), layout, expected.span());
    const std::size_t payload = reference.encode_exact(src.view(), layout, expected.span());

    const testing::HostCodec device;
    AlignedBytes coded(layout.bytes());
    device.encode(src.view(), layout, coded.span());
    device.encode_exact(src.view(), layout, coded.span());
    // Neither writes what the payload does not fill.
    ASSERT_TRUE(std::ranges::equal(coded.span(), expected.span())) << "round " << round;

    std::vector<std::uint16_t> out(src.values().size());
    ASSERT_EQ(device.decode_exact(layout, coded.span(), src.view_of(out)), cuda::kNoFault) << "round " << round;
    ASSERT_TRUE(out == src.values()) << "round " << round;
    checked.values += out.size();
    if (payload < layout.exact_payload().bytes / 2) checked.coded += out.size();
}

TEST(DeviceExactOnRandomBits, WritesTheCpusBytesAndRestoresTheSource) {
    ThreadPool threads(2);
    Checked checked;
    threads.run(kRounds, [&](std::size_t round) noexcept { check_round(static_cast<unsigned>(round), checked); });
    EXPECT_GE(checked.values, kValues);
    EXPECT_GT(checked.coded, 0u);
    RecordProperty("values", std::to_string(checked.values));
}

}  // namespace
}  // namespace lynx
