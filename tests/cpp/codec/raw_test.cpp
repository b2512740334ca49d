#include <gtest/gtest.h>

#include <cmath>

#include "codec/tensors.hpp"
#include "lynx/codec.hpp"

namespace lynx {
namespace {

using testing::kAllDTypes;
using testing::kAllStrides;
using testing::Strides;
using testing::Tensor;

PlaneLayout raw_layout(DType dtype, std::uint32_t heads, std::uint32_t tokens, std::uint32_t head_dim) {
    return PlaneLayout({Coding::kRaw, dtype, heads, tokens, head_dim, 4});
}

TEST(RawCoding, SendsEveryBitAndTakesAnyStrides) {
    std::mt19937 random(7);
    for (const DType dtype : kAllDTypes) {
        for (const Strides strides : kAllStrides) {
            for (const std::int64_t tokens : {0, 1, 33}) {
                Tensor src(dtype, 3, tokens, 96, strides);
                for (int h = 0; h < 3; ++h)
                    for (int t = 0; t < tokens; ++t)
                        for (int d = 0; d < 96; ++d) src.set_bits(h, t, d, static_cast<std::uint32_t>(random()));
                const PlaneLayout layout = raw_layout(dtype, 3, static_cast<std::uint32_t>(tokens), 96);
                std::vector<std::byte> coded(layout.bytes());
                EXPECT_EQ(Codec::best().encode(src.view(), layout, coded).nonfinite_vectors, 0u);
                Tensor same(dtype, 3, tokens, 96, strides);
                Codec::best().decode(layout, coded, 1, same.mutable_view());
                EXPECT_EQ(same.stray_bytes(), 0u);
                std::size_t at = 0;
                for (int h = 0; h < 3; ++h)
                    for (int t = 0; t < tokens; ++t)
                        for (int d = 0; d < 96; ++d, at += size_of(dtype)) {
                            std::uint32_t bits = 0;
                            std::memcpy(&bits, coded.data() + at, size_of(dtype));
                            ASSERT_EQ(bits, src.bits(h, t, d));
                            ASSERT_EQ(same.bits(h, t, d), bits);
                        }
            }
        }
    }
}

TEST(RawCoding, ConvertsToAnyDTypeOnDecoding) {
    for (const DType from : kAllDTypes) {
        for (const DType to : kAllDTypes) {
            for (const Strides strides : kAllStrides) {
                Tensor src(from, 2, 40, 72, strides);
                src.fill_normal(3, 1e-6);
                src.set(0, 0, 0, 1e30);
                src.set(0, 0, 1, -INFINITY);
                src.set(0, 0, 2, NAN);
                const PlaneLayout layout = raw_layout(from, 2, 40, 72);
                std::vector<std::byte> coded(layout.bytes());
                (void)Codec::best().encode(src.view(), layout, coded);
                Tensor dst(to, 2, 40, 72, strides);
                Codec::best().decode(layout, coded, 1, dst.mutable_view());
                EXPECT_EQ(dst.stray_bytes(), 0u);
                for (int h = 0; h < 2; ++h)
                    for (int t = 0; t < 40; ++t)
                        for (int d = 0; d < 72; ++d) {
                            const auto value = static_cast<float>(src.value(h, t, d));
                            if (std::isnan(value))
                                ASSERT_TRUE(std::isnan(dst.value(h, t, d)));
                            else
                                ASSERT_EQ(dst.bits(h, t, d), oracle::bits_of(to, oracle::round_to(to, value)));
                        }
            }
        }
    }
}

}  // namespace
}  // namespace lynx
