// Vectors whose rotation is not finite: infinities and NaNs of the source, and sums that overflow. Every kernel finds
// the same ones, by whichever sum they show in.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "codec/tensors.hpp"
#include "lynx/codec.hpp"

namespace lynx {
namespace {

using testing::kAllDTypes;
using testing::Tensor;

constexpr std::uint32_t kHeadDims[] = {8, 16, 64, 96, 128, 192, 256, 512, 1024};
constexpr std::int64_t kTokens = 70;

PlaneLayout layout_of(const Tensor& src) {
    const TensorView view = src.view();
    return PlaneLayout({.dtype = view.dtype,
                        .heads = 1,
                        .tokens = static_cast<std::uint32_t>(view.tokens()),
                        .head_dim = static_cast<std::uint32_t>(view.head_dim())});
}

/// All kernels give the scalar ones' bytes and count.
void expect_same_of_all(const Tensor& src, std::size_t nonfinite) {
    const PlaneLayout layout = layout_of(src);
    std::vector<std::byte> expected(layout.bytes());
    EXPECT_EQ(Codec::by_name("scalar").encode(src.view(), layout, expected).nonfinite_vectors, nonfinite);
    for (const std::string_view name : Codec::available()) {
        SCOPED_TRACE(name);
        std::vector<std::byte> coded(layout.bytes());
        EXPECT_EQ(Codec::by_name(name).encode(src.view(), layout, coded).nonfinite_vectors, nonfinite);
        EXPECT_TRUE(coded == expected);
    }
}

TEST(NonfiniteVectors, AreFoundWhereTheirInfinitiesMeet) {
    std::mt19937 random(5);
    for (const DType dtype : kAllDTypes)
        for (const std::uint32_t head_dim : kHeadDims) {
            SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", head_dim " << head_dim);
            Tensor src(dtype, 1, kTokens, head_dim);
            src.fill_normal(head_dim);
            std::size_t odd = 0;
            // Two to four infinities a power of two apart, of equal or mixed signs: sums are infinite, differences NaN,
            // or the other way round, from one stage of the rotation on.
            for (std::int64_t token = 0; token < kTokens; token += 1 + static_cast<std::int64_t>(random() % 3), ++odd) {
                const std::uint32_t first = random() % head_dim;
                for (unsigned i = 0, count = 2 + random() % 3; i < count; ++i) {
                    const std::uint32_t place = i == 0 ? first : first ^ (1u << (random() % 10)) % head_dim;
                    const double value = random() % 8 == 0 ? NAN : random() % 3 == 0 ? -INFINITY : INFINITY;
                    src.set_bits(0, token, place % head_dim, oracle::bits_of(dtype, value));
                }
            }
            expect_same_of_all(src, odd);
        }
}

TEST(NonfiniteVectors, AreFoundWithTheSameInfinityInAllPlaces) {
    for (const DType dtype : kAllDTypes)
        for (const std::uint32_t head_dim : kHeadDims)
            for (std::uint32_t step = 1; step <= head_dim; step *= 2) {
                SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", head_dim " << head_dim << ", every " << step);
                Tensor src(dtype, 1, 20, head_dim);
                src.fill_normal(step);
                for (const std::int64_t token : {3, 11, 19})
                    for (std::uint32_t d = 0; d < head_dim; d += step)
                        src.set_bits(0, token, d, oracle::bits_of(dtype, token == 11 ? -INFINITY : INFINITY));
                expect_same_of_all(src, 3);
            }
}

TEST(NonfiniteVectors, AreFoundWhereSumsOverflow) {
    for (const std::uint32_t head_dim : kHeadDims) {
        SCOPED_TRACE(head_dim);
        std::mt19937 random(23);
        Tensor src(DType::kF32, 1, 100, head_dim);
        // Infinities that cancel: the first vector's rotation is NaN in some coordinates and infinite in none.
        const double cancelling[] = {2e38, 2e38, 2e38, 2e38, 2e38, 2e38, -2e38, -2e38};
        src.fill([&](std::int64_t, std::int64_t t, std::int64_t d) {
            if (t == 0) return d < 8 ? cancelling[d] : 0.0;
            const double sign = random() % 2 == 0 ? 1 : -1;
            return random() % (head_dim / 3) == 0 ? sign * 1.2e38 : 1.0;
        });
        std::size_t expected = 0;
        for (int t = 0; t < 100; ++t) expected += oracle::encode(src.vector(0, t)).finite ? 0 : 1;
        EXPECT_FALSE(oracle::encode(src.vector(0, 0)).finite);
        EXPECT_GT(expected, 1u);
        EXPECT_LT(expected, 100u);
        expect_same_of_all(src, expected);
    }
}

}  // namespace
}  // namespace lynx
