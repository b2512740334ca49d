// The planes coding against the oracle: every kernel that this CPU runs, bit for bit.
#include "lynx/codec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "codec/all_codecs.hpp"
#include "codec/tensors.hpp"

namespace lynx {
namespace {

using testing::for_each_codec;
using testing::kAllDTypes;
using testing::kAllStrides;
using testing::Strides;
using testing::Tensor;

constexpr std::uint32_t kHeadDims[] = {8, 16, 24, 40, 64, 96, 128, 256, 576, 1000, 1024};

struct Fixture {
    const Codec& codec;
    PlaneLayout layout;
    std::vector<std::byte> coded;
    EncodeStats stats;

    Fixture(const Codec& c, const Tensor& src, std::uint8_t anchor_bits = 4, std::uint16_t sink_tokens = 0)
        : codec(c), layout(spec_of(src.view(), anchor_bits, sink_tokens)), coded(layout.bytes(), std::byte{0xa5}) {
        stats = codec.encode(src.view(), layout, coded);
    }

    static TensorSpec spec_of(const TensorView& view, std::uint8_t anchor_bits, std::uint16_t sink_tokens) {
        return {Coding::kPlanes,
                view.dtype,
                static_cast<std::uint32_t>(view.heads()),
                static_cast<std::uint32_t>(view.tokens()),
                static_cast<std::uint32_t>(view.head_dim()),
                anchor_bits,
                sink_tokens};
    }

    [[nodiscard]] double half_at(Extent extent, std::size_t vector) const {
        std::uint16_t bits = 0;
        std::memcpy(&bits, coded.data() + extent.offset + 2 * vector, 2);
        return oracle::value_of(DType::kF16, bits);
    }

    /// What the bytes say of one vector, bit by bit.
    [[nodiscard]] oracle::Coded vector(std::size_t index) const {
        const std::size_t head_dim = layout.spec().head_dim;
        oracle::Coded out;
        out.scale = half_at(layout.scales(), index);
        out.zero = half_at(layout.zeros(), index);
        for (std::size_t d = 0; d < head_dim; ++d) {
            int code = 0;
            for (unsigned p = 0; p < 8; ++p) {
                const auto byte = coded[layout.plane(p).offset + index * (head_dim / 8) + d / 8];
                code = 2 * code + (std::to_integer<int>(byte) >> d % 8 & 1);
            }
            out.codes.push_back(code);
        }
        return out;
    }
};

void expect_codes_of_oracle(const Fixture& f, const Tensor& src) {
    const TensorSpec& spec = f.layout.spec();
    for (std::uint32_t h = 0; h < spec.heads; ++h) {
        for (std::uint32_t t = 0; t < spec.tokens; ++t) {
            const oracle::Coded expected = oracle::encode(src.vector(h, t));
            const oracle::Coded got = f.vector(std::size_t{h} * spec.tokens + t);
            ASSERT_EQ(got.scale, expected.scale) << "head " << h << " token " << t;
            ASSERT_EQ(got.zero, expected.zero) << "head " << h << " token " << t;
            ASSERT_FALSE(std::signbit(got.zero) && got.zero == 0) << "head " << h << " token " << t;
            ASSERT_EQ(got.codes, expected.codes) << "head " << h << " token " << t;
        }
    }
}

void expect_values_of_oracle(const Fixture& f, unsigned planes, DType dtype, Strides strides) {
    const TensorSpec& spec = f.layout.spec();
    const std::uint32_t whole = planes < spec.anchor_bits ? 0 : spec.sink_tokens;
    Tensor dst(dtype, spec.heads, spec.tokens, spec.head_dim, strides);
    f.codec.decode(f.layout, f.coded, planes, dst.mutable_view());
    EXPECT_EQ(dst.stray_bytes(), 0u);
    for (std::uint32_t h = 0; h < spec.heads; ++h) {
        for (std::uint32_t t = 0; t < spec.tokens; ++t) {
            const auto expected =
                oracle::decode(f.vector(std::size_t{h} * spec.tokens + t), t < whole ? 8 : static_cast<int>(planes));
            for (std::uint32_t d = 0; d < spec.head_dim; ++d)
                ASSERT_EQ(dst.bits(h, t, d), oracle::bits_of(dtype, oracle::round_to(dtype, expected[d])))
                    << "planes " << planes << " " << name_of(dtype) << " at " << h << " " << t << " " << d;
        }
    }
}

TEST(Codec, TheOraclesButterflyIsTheHadamardMatrix) {
    std::vector<std::int64_t> x(64);
    for (std::size_t i = 0; i < 64; ++i) x[i] = static_cast<std::int64_t>(i * i * 37 % 101);
    auto y = x;
    oracle::butterfly(y, 32);
    for (unsigned i = 0; i < 64; ++i) {
        std::int64_t sum = 0;
        for (unsigned j = 0; j < 32; ++j)
            sum += (__builtin_popcount(i % 32 & j) % 2 == 1 ? -1 : 1) * x[i / 32 * 32 + j];
        ASSERT_EQ(y[i], sum);
    }
}

TEST(Codec, EncodesEveryHeadDimToTheOraclesCodes) {
    for_each_codec([](const Codec& codec) {
        for (const std::uint32_t head_dim : kHeadDims) {
            for (const std::uint32_t heads : {1u, 3u}) {
                for (const std::uint32_t tokens : {0u, 1u, 2u, 7u, 33u}) {
                    SCOPED_TRACE(::testing::Message() << heads << " x " << tokens << " x " << head_dim);
                    Tensor src(DType::kF32, heads, tokens, head_dim);
                    src.fill_normal(head_dim + tokens);
                    const Fixture f(codec, src);
                    EXPECT_EQ(f.stats.nonfinite_vectors, 0u);
                    expect_codes_of_oracle(f, src);
                }
            }
        }
    });
}

TEST(Codec, EncodesAnyStridesOfAnyDType) {
    for_each_codec([](const Codec& codec) {
        for (const DType dtype : kAllDTypes) {
            for (const Strides strides : kAllStrides) {
                for (const std::uint32_t head_dim : {24u, 64u, 1024u}) {
                    for (const std::uint32_t tokens : {1u, 33u}) {
                        SCOPED_TRACE(::testing::Message() << name_of(dtype) << " strides " << static_cast<int>(strides)
                                                          << " D " << head_dim);
                        Tensor src(dtype, 3, tokens, head_dim, strides);
                        src.fill_normal(5);
                        expect_codes_of_oracle(Fixture(codec, src), src);
                    }
                }
            }
        }
    });
}

TEST(Codec, DecodesEveryPrefixOfPlanesToTheOraclesValues) {
    for_each_codec([](const Codec& codec) {
        for (const std::uint32_t head_dim : kHeadDims) {
            for (const std::uint32_t tokens : {1u, 2u, 7u}) {
                SCOPED_TRACE(::testing::Message() << "D " << head_dim << " tokens " << tokens);
                Tensor src(DType::kF32, 3, tokens, head_dim);
                src.fill_normal(head_dim);
                const Fixture f(codec, src);
                for (unsigned planes = 1; planes <= 8; ++planes)
                    for (const DType dtype : kAllDTypes)
                        expect_values_of_oracle(f, planes, dtype, Strides::kContiguous);
            }
        }
    });
}

TEST(Codec, DecodesIntoAnyStrides) {
    for_each_codec([](const Codec& codec) {
        for (const std::uint32_t head_dim : {40u, 64u, 1024u}) {
            Tensor src(DType::kBF16, 3, 33, head_dim);
            src.fill_normal(9);
            const Fixture f(codec, src);
            for (const Strides strides : kAllStrides)
                for (const DType dtype : kAllDTypes) expect_values_of_oracle(f, 4, dtype, strides);
        }
    });
}

TEST(Codec, AnchorBitsChangeThePartsAndNotTheBytes) {
    Tensor src(DType::kBF16, 3, 7, 96);
    src.fill_normal(11);
    const Fixture four(Codec::best(), src);
    for (std::uint8_t bits = 1; bits <= 8; ++bits) {
        const Fixture f(Codec::best(), src, bits);
        EXPECT_EQ(f.coded, four.coded);
        for (unsigned planes = 1; planes <= 8; ++planes)
            expect_values_of_oracle(f, planes, DType::kF32, Strides::kContiguous);
    }
}

TEST(Codec, SinksRepeatTheirTokensBitsOfTheResidual) {
    for_each_codec([](const Codec& codec) {
        Tensor src(DType::kBF16, 3, 7, 96);
        src.fill_normal(43);
        const Fixture f(codec, src, 5, 2);
        const Fixture plain(codec, src, 5);
        const std::byte* at = f.coded.data() + f.layout.sinks().offset;
        for (std::size_t head = 0; head < 3; ++head)
            for (std::size_t token = 0; token < 2; ++token)
                for (unsigned p = 5; p < 8; ++p, at += 12)
                    EXPECT_EQ(std::memcmp(at, f.coded.data() + f.layout.plane(p).offset + (head * 7 + token) * 12, 12),
                              0);
        // Apart from them the bytes are those without sinks.
        auto rest = f.coded;
        const auto begin = rest.begin() + static_cast<std::ptrdiff_t>(f.layout.sinks().offset);
        rest.erase(begin, begin + static_cast<std::ptrdiff_t>(f.layout.sinks().bytes));
        EXPECT_EQ(rest, plain.coded);
    });
}

// The residual is overwritten: what the anchor gives of the sinks is all its own.
TEST(Codec, DecodesSinksFromTheAnchorAsFromAllPlanes) {
    for_each_codec([](const Codec& codec) {
        for (const std::uint32_t head_dim : {8u, 96u, 1024u}) {
            for (const std::uint32_t tokens : {1u, 3u, 7u}) {
                for (const std::uint8_t bits : {1, 5, 8}) {
                    for (const std::uint16_t sinks : {0, 1, 4}) {
                        SCOPED_TRACE(::testing::Message() << "D " << head_dim << " tokens " << tokens << " bits "
                                                          << int{bits} << " sinks " << sinks);
                        Tensor src(DType::kF32, 3, tokens, head_dim);
                        src.fill_normal(head_dim + tokens);
                        const Fixture f(codec, src, bits, sinks);
                        expect_codes_of_oracle(f, src);
                        for (unsigned planes = 1; planes <= 8; ++planes)
                            expect_values_of_oracle(f, planes, DType::kF32, Strides::kContiguous);
                        Tensor all(DType::kBF16, 3, tokens, head_dim);
                        codec.decode(f.layout, f.coded, 8, all.mutable_view());
                        auto anchor = f.coded;
                        std::fill(anchor.begin() + static_cast<std::ptrdiff_t>(f.layout.part(0).bytes), anchor.end(),
                                  std::byte{0xff});
                        Tensor dst(DType::kBF16, 3, tokens, head_dim);
                        codec.decode(f.layout, anchor, bits, dst.mutable_view());
                        for (std::uint32_t h = 0; h < 3; ++h)
                            for (std::uint32_t t = 0; t < std::min<std::uint32_t>(sinks, tokens); ++t)
                                for (std::uint32_t d = 0; d < head_dim; ++d)
                                    ASSERT_EQ(dst.bits(h, t, d), all.bits(h, t, d)) << h << " " << t << " " << d;
                    }
                }
            }
        }
    });
}

TEST(Codec, DecodesSinksIntoAnyStridesOfAnyDType) {
    for_each_codec([](const Codec& codec) {
        Tensor src(DType::kBF16, 3, 33, 64);
        src.fill_normal(47);
        const Fixture f(codec, src, 3, 4);
        for (const Strides strides : kAllStrides)
            for (const DType dtype : kAllDTypes) expect_values_of_oracle(f, 3, dtype, strides);
    });
}

TEST(Codec, AllPlanesDecodeWithoutALookAtTheSinks) {
    Tensor src(DType::kBF16, 3, 7, 64);
    src.fill_normal(53);
    Fixture f(Codec::best(), src, 4, 4);
    const Extent sinks = f.layout.sinks();
    std::fill_n(f.coded.begin() + static_cast<std::ptrdiff_t>(sinks.offset), sinks.bytes, std::byte{0xff});
    for (const unsigned planes : {3u, 8u}) {
        const oracle::Coded first = oracle::encode(src.vector(0, 0));
        const auto expected = oracle::decode(first, static_cast<int>(planes));
        Tensor dst(DType::kF32, 3, 7, 64);
        f.codec.decode(f.layout, f.coded, planes, dst.mutable_view());
        for (std::uint32_t d = 0; d < 64; ++d) ASSERT_EQ(dst.value(0, 0, d), expected[d]) << planes;
    }
}

TEST(Codec, ReadsOnlyThePlanesItIsAskedFor) {
    for_each_codec([](const Codec& codec) {
        Tensor src(DType::kF16, 3, 33, 128);
        src.fill_normal(13);
        const Fixture f(codec, src);
        for (unsigned planes = 1; planes < 8; ++planes) {
            Tensor clean(DType::kF32, 3, 33, 128);
            codec.decode(f.layout, f.coded, planes, clean.mutable_view());
            auto poisoned = f.coded;
            std::fill(poisoned.begin() + static_cast<std::ptrdiff_t>(f.layout.plane(planes).offset), poisoned.end(),
                      std::byte{0xff});
            Tensor dst(DType::kF32, 3, 33, 128);
            codec.decode(f.layout, poisoned, planes, dst.mutable_view());
            for (int h = 0; h < 3; ++h)
                for (int t = 0; t < 33; ++t)
                    for (int d = 0; d < 128; ++d) ASSERT_EQ(dst.bits(h, t, d), clean.bits(h, t, d));
        }
    });
}

TEST(Codec, ErrorFallsWithEachPlaneAndStaysWithinItsBound) {
    for_each_codec([](const Codec& codec) {
        for (const std::uint32_t head_dim : {64u, 96u, 128u}) {
            constexpr int kTokens = 33;
            Tensor src(DType::kF32, 1, kTokens, head_dim);
            src.fill_normal(17);
            const Fixture f(codec, src);
            const double block = oracle::block_of(static_cast<int>(head_dim));
            const int odd = oracle::log2_of(static_cast<int>(block)) % 2;
            double last = INFINITY;
            for (unsigned planes = 1; planes <= 8; ++planes) {
                Tensor dst(DType::kF32, 1, kTokens, head_dim);
                codec.decode(f.layout, f.coded, planes, dst.mutable_view());
                double total = 0;
                for (int t = 0; t < kTokens; ++t) {
                    double squares = 0;
                    for (std::uint32_t d = 0; d < head_dim; ++d)
                        squares += std::pow(dst.value(0, t, d) - src.value(0, t, d), 2);
                    // A coordinate is off by half a step, and where the fp16 zero or scale clip it by what
                    // these rounded away; the inverse rotation keeps the length but for an odd log2(B)'s
                    // factor of 1 / sqrt(2).
                    const double scale = f.half_at(f.layout.scales(), static_cast<std::size_t>(t));
                    const double zero = f.half_at(f.layout.zeros(), static_cast<std::size_t>(t));
                    const double step = std::ldexp(scale, static_cast<int>(8 - planes));
                    const double each = step / 2 + std::abs(zero) * 0x1p-11 + 256 * scale * 0x1p-11;
                    const double bound = each * std::sqrt(head_dim * (odd ? 0.5 : 1.0));
                    EXPECT_LE(std::sqrt(squares), bound) << "planes " << planes << " token " << t;
                    total += squares;
                }
                EXPECT_LT(total, last * 0.5) << "planes " << planes;
                last = total;
            }
            // All eight planes of values around 1 with an outlier channel of 12.
            EXPECT_LT(std::sqrt(last / (kTokens * head_dim)), 0.05);
        }
    });
}

TEST(Codec, CountsNonfiniteVectorsAndLeavesTheirNeighboursAlone) {
    for_each_codec([](const Codec& codec) {
        for (const DType dtype : kAllDTypes) {
            Tensor clean(dtype, 3, 7, 96);
            clean.fill_normal(19);
            Tensor dirty = clean;
            dirty.set(0, 2, 95, NAN);
            dirty.set(1, 0, 0, INFINITY);
            dirty.set(2, 6, 40, -INFINITY);
            dirty.set(2, 6, 41, INFINITY);
            const Fixture expected(codec, clean);
            const Fixture f(codec, dirty);
            EXPECT_EQ(f.stats.nonfinite_vectors, 3u);
            Tensor dst(dtype, 3, 7, 96);
            codec.decode(f.layout, f.coded, 8, dst.mutable_view());
            for (std::size_t v = 0; v < 21; ++v) {
                const auto got = f.vector(v);
                if (v != 2 && v != 7 && v != 20) {
                    EXPECT_EQ(got.codes, expected.vector(v).codes);
                    EXPECT_EQ(got.scale, expected.vector(v).scale);
                    continue;
                }
                EXPECT_EQ(got.scale, 0);
                EXPECT_EQ(got.zero, 0);
                EXPECT_EQ(got.codes, std::vector<int>(96, 0));
                for (int d = 0; d < 96; ++d)
                    EXPECT_EQ(dst.bits(static_cast<int>(v) / 7, static_cast<int>(v) % 7, d), 0u);
            }
        }
    });
}

TEST(Codec, CodesConstantsHugeAndTinyValuesAsTheOracleDoes) {
    for_each_codec([](const Codec& codec) {
        const double values[] = {0.0,   -0.0, 1.0,  -3.5,  65504.0, -65504.0, 1e6,
                                 -1e30, 3e38, 1e-7, -1e-8, 1e-30,   1e-40,    -1e-44};
        for (const std::uint32_t head_dim : {8u, 64u, 128u}) {
            Tensor src(DType::kF32, 3, std::size(values), head_dim);
            src.fill([&](std::int64_t h, std::int64_t t, std::int64_t d) {
                const double value = values[t];
                if (h == 0) return value;                 // constant: all in coordinate 0
                if (h == 1) return d == 5 ? value : 0.0;  // a spike: +-value everywhere
                return value * std::sin(1.0 + static_cast<double>(d));
            });
            const Fixture f(codec, src);
            std::size_t nonfinite = 0;
            for (int h = 0; h < 3; ++h)
                for (int t = 0; t < static_cast<int>(std::size(values)); ++t)
                    nonfinite += oracle::encode(src.vector(h, t)).finite ? 0 : 1;
            EXPECT_GT(nonfinite, 0u);  // 3e38 overflows in the rotation
            EXPECT_EQ(f.stats.nonfinite_vectors, nonfinite);
            expect_codes_of_oracle(f, src);
            for (unsigned planes = 1; planes <= 8; ++planes)
                for (const DType dtype : kAllDTypes) expect_values_of_oracle(f, planes, dtype, Strides::kContiguous);
        }
    });
}

TEST(Codec, WritesNothingOutsideItsDestination) {
    for_each_codec([](const Codec& codec) {
        for (const std::uint32_t head_dim : {8u, 24u, 1000u}) {
            Tensor src(DType::kBF16, 1, 3, head_dim);
            src.fill_normal(29);
            const Fixture f(codec, src);
            // One byte off any alignment, between guards.
            std::vector<std::byte> guarded(f.coded.size() + 65, std::byte{0x5a});
            codec.encode(src.view(), f.layout, std::span(guarded).subspan(1, f.coded.size()));
            EXPECT_TRUE(std::equal(f.coded.begin(), f.coded.end(), guarded.begin() + 1));
            EXPECT_EQ(guarded[0], std::byte{0x5a});
            for (std::size_t i = f.coded.size() + 1; i < guarded.size(); ++i) ASSERT_EQ(guarded[i], std::byte{0x5a});
            Tensor dst(DType::kF32, 1, 3, head_dim);
            codec.decode(f.layout, std::span(guarded).subspan(1, f.coded.size()), 8, dst.mutable_view());
            for (std::uint32_t d = 0; d < head_dim; ++d)
                ASSERT_EQ(dst.value(0, 2, d), oracle::decode(f.vector(2), 8)[d]);
        }
    });
}

}  // namespace
}  // namespace lynx
