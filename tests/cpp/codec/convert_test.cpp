#include "codec/convert.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "codec/oracle.hpp"

namespace lynx::codec {
namespace {

TEST(Convert, EverySixteenBitValueSurvivesTheWayThroughFp32) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto b = static_cast<std::uint16_t>(bits);
        const float half = f16_to_f32(b);
        const float brain = bf16_to_f32(b);
        if (std::isnan(half)) {
            EXPECT_EQ(f32_to_f16(half), b | 0x200);  // quiet, payload and sign kept
        } else {
            ASSERT_EQ(half, oracle::value_of(DType::kF16, bits)) << bits;
            ASSERT_EQ(f32_to_f16(half), b);
        }
        if (std::isnan(brain))
            EXPECT_EQ(f32_to_bf16(brain), b | 0x40);
        else
            ASSERT_EQ(f32_to_bf16(brain), b);
    }
}

TEST(Convert, RoundsToNearestEvenAsTheDefinitionDoes) {
    std::vector<std::uint32_t> cases;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        // Around each fp16 and bf16 value: the value, the tie to the next, and one step beside the tie.
        const auto half = std::bit_cast<std::uint32_t>(f16_to_f32(static_cast<std::uint16_t>(bits)));
        for (const std::uint32_t d : {0u, 0xfffu, 0x1000u, 0x1001u}) cases.push_back(half + d);
        for (const std::uint32_t d : {0u, 0x7fffu, 0x8000u, 0x8001u}) cases.push_back((bits << 16) + d);
    }
    std::mt19937 random(1);
    for (int i = 0; i < 200000; ++i) cases.push_back(random());
    for (const std::uint32_t bits : cases) {
        const auto value = std::bit_cast<float>(bits);
        if (std::isnan(value)) continue;
        ASSERT_EQ(f32_to_f16(value), oracle::bits_of(DType::kF16, oracle::to_half(value))) << value;
        ASSERT_EQ(f32_to_bf16(value), oracle::bits_of(DType::kBF16, oracle::to_bf16(value))) << value;
    }
}

}  // namespace
}  // namespace lynx::codec
