// The exact tier: every bit comes back, the bytes are those of the wire format, and bad bytes are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "codec/all_codecs.hpp"
#include "codec/exact_oracle.hpp"
#include "codec/tensors.hpp"
#include "lynx/codec.hpp"
#include "lynx/error.hpp"
#include "lynx/executor.hpp"

namespace lynx {
namespace {

using testing::for_each_codec;
using testing::kAllStrides;
using testing::Strides;
using testing::Tensor;

constexpr DType kTypes[] = {DType::kBF16, DType::kF16};

TensorSpec spec_of(const TensorView& view) {
    return {.dtype = view.dtype,
            .heads = static_cast<std::uint32_t>(view.heads()),
            .tokens = static_cast<std::uint32_t>(view.tokens()),
            .head_dim = static_cast<std::uint32_t>(view.head_dim()),
            .exact = true};
}

struct Coded {
    const Codec& codec;
    PlaneLayout layout;
    std::vector<std::byte> bytes;
    std::size_t payload;

    Coded(const Codec& c, const Tensor& src)
        : codec(c), layout(spec_of(src.view())), bytes(layout.bytes(), std::byte{0xa5}) {
        codec.encode(src.view(), layout, bytes);
        payload = codec.encode_exact(src.view(), layout, bytes);
    }

    [[nodiscard]] std::uint32_t end_of(std::size_t group) const {
        std::uint32_t end = 0;
        std::memcpy(&end, bytes.data() + layout.exact_index().offset + 4 * group, 4);
        return end;
    }
    void set_end(std::size_t group, std::uint32_t end) {
        std::memcpy(bytes.data() + layout.exact_index().offset + 4 * group, &end, 4);
    }
    [[nodiscard]] Tensor reconstruction(unsigned planes = kPlaneCount) const {
        const TensorSpec& s = layout.spec();
        Tensor out(s.dtype, s.heads, s.tokens, s.head_dim);
        codec.decode(layout, bytes, planes, out.mutable_view());
        return out;
    }
};

void for_each_value(const Tensor& t, const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& use) {
    const TensorView view = t.view();
    for (std::int64_t h = 0; h < view.heads(); ++h)
        for (std::int64_t token = 0; token < view.tokens(); ++token)
            for (std::int64_t d = 0; d < view.head_dim(); ++d) use(h, token, d);
}

void expect_same_bits(const Tensor& got, const Tensor& expected) {
    std::size_t wrong = 0;
    for_each_value(expected, [&](auto h, auto t, auto d) { wrong += got.bits(h, t, d) != expected.bits(h, t, d); });
    EXPECT_EQ(wrong, 0u);
}

void expect_round_trip(const Coded& coded, const Tensor& src) {
    const TensorView view = src.view();
    Tensor out(view.dtype, view.heads(), view.tokens(), view.head_dim());
    coded.codec.decode_exact(coded.layout, coded.bytes, out.mutable_view());
    expect_same_bits(out, src);
}

Tensor normal(DType type, std::int64_t heads, std::int64_t tokens, std::int64_t head_dim, unsigned seed = 1,
              double spread = 1.0, Strides strides = Strides::kContiguous) {
    Tensor t(type, heads, tokens, head_dim, strides);
    t.fill_normal(seed, spread);
    return t;
}

std::vector<std::byte> group_of_oracle(const Coded& coded, const Tensor& src, const Tensor& reference,
                                       std::size_t first, std::size_t vectors) {
    const TensorSpec& spec = coded.layout.spec();
    std::vector<bool> bits;
    for (std::size_t v = first; v < first + vectors; ++v) {
        std::uint16_t scale = 0;
        std::memcpy(&scale, coded.bytes.data() + coded.layout.scales().offset + 2 * v, 2);
        const auto h = static_cast<std::int64_t>(v / spec.tokens);
        const auto t = static_cast<std::int64_t>(v % spec.tokens);
        for (std::int64_t start = 0; start < spec.head_dim; start += 64) {
            std::vector<oracle::Value> word;
            for (std::int64_t d = start; d < std::min<std::int64_t>(start + 64, spec.head_dim); ++d)
                word.push_back(oracle::exact_value(spec.dtype, src.bits(h, t, d), reference.bits(h, t, d),
                                                   oracle::value_of(DType::kF16, scale)));
            const std::vector<bool> more = oracle::bits_of_word(word);
            bits.insert(bits.end(), more.begin(), more.end());
        }
    }
    std::vector<std::byte> bytes((bits.size() + 63) / 64 * 8, std::byte{0});
    for (std::size_t i = 0; i < bits.size(); ++i)
        if (bits[i]) bytes[i / 8] |= std::byte{1} << static_cast<int>(i % 8);
    if (bytes.size() < vectors * spec.head_dim * 2) return bytes;
    bytes.clear();
    for (std::size_t v = first; v < first + vectors; ++v)
        for (std::int64_t d = 0; d < spec.head_dim; ++d) {
            const std::uint32_t x =
                src.bits(static_cast<std::int64_t>(v / spec.tokens), static_cast<std::int64_t>(v % spec.tokens), d);
            bytes.push_back(static_cast<std::byte>(x & 255));
            bytes.push_back(static_cast<std::byte>(x >> 8));
        }
    return bytes;
}

void expect_bytes_of_oracle(const Coded& coded, const Tensor& src) {
    const Tensor reference = coded.reconstruction();
    const std::size_t group_vectors = coded.layout.group_vectors();
    std::vector<std::byte> expected;
    for (std::size_t g = 0; g < coded.layout.groups(); ++g) {
        const std::size_t first = g * group_vectors;
        const std::size_t vectors = std::min(group_vectors, coded.layout.vectors() - first);
        const std::vector<std::byte> group = group_of_oracle(coded, src, reference, first, vectors);
        expected.insert(expected.end(), group.begin(), group.end());
        EXPECT_EQ(std::size_t{coded.end_of(g)} * 8, expected.size()) << "group " << g;
    }
    ASSERT_EQ(coded.payload, expected.size());
    const auto payload = coded.bytes.begin() + static_cast<std::ptrdiff_t>(coded.layout.exact_payload().offset);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), payload));
    const auto rest = payload + static_cast<std::ptrdiff_t>(expected.size());
    EXPECT_TRUE(std::all_of(rest, coded.bytes.end(), [](std::byte b) { return b == std::byte{0xa5}; }));
}

// ---- Tests -------------------------------------------------------------------------------------------------

TEST(ExactTier, HasTheBytesOfTheFormatAndRestoresTheSource) {
    for_each_codec([](const Codec& codec) {
        for (const DType type : kTypes)
            for (const int head_dim : {8, 16, 24, 64, 80, 96, 128, 200, 256, 576, 1024}) {
                SCOPED_TRACE(std::string(name_of(type)) + ", head_dim " + std::to_string(head_dim));
                const Tensor src = normal(type, 3, 23, head_dim);
                const Coded coded(codec, src);
                expect_bytes_of_oracle(coded, src);
                expect_round_trip(coded, src);
            }
    });
}

TEST(ExactTier, RestoresEveryBitPattern) {
    for_each_codec([](const Codec& codec) {
        for (const DType type : kTypes) {
            Tensor src(type, 2, 512, 64);
            for_each_value(src, [&](auto h, auto t, auto d) {
                src.set_bits(h, t, d, static_cast<std::uint32_t>(((h * 512 + t) * 64 + d) & 0xffff));
            });
            const Coded coded(codec, src);
            expect_bytes_of_oracle(coded, src);
            expect_round_trip(coded, src);
        }
    });
}

TEST(ExactTier, RestoresRandomBitsAmongOrdinaryValues) {
    std::mt19937 random(7);
    for_each_codec([&](const Codec& codec) {
        for (const DType type : kTypes)
            for (const double spread : {0.0, 1e-30, 1e-6, 1.0, 1e4, 1e30}) {
                SCOPED_TRACE(spread);
                Tensor src = normal(type, 2, 40, 128, 3, spread);
                for (int i = 0; i < 60; ++i)
                    src.set_bits(random() % 2, random() % 40, random() % 128, random() & 0xffff);
                const Coded coded(codec, src);
                expect_bytes_of_oracle(coded, src);
                expect_round_trip(coded, src);
            }
    });
}

TEST(ExactTier, ReadsAndWritesAnyStrides) {
    for_each_codec([](const Codec& codec) {
        for (const DType type : kTypes)
            for (const Strides strides : kAllStrides) {
                SCOPED_TRACE(static_cast<int>(strides));
                const Tensor src = normal(type, 3, 45, 64, 5, 1.0, strides);
                const Coded coded(codec, src);
                EXPECT_EQ(coded.bytes, Coded(codec, normal(type, 3, 45, 64, 5)).bytes);
                Tensor out(type, 3, 45, 64, strides);
                codec.decode_exact(coded.layout, coded.bytes, out.mutable_view());
                expect_same_bits(out, src);
                EXPECT_EQ(out.stray_bytes(), 0u);
            }
    });
}

TEST(ExactTier, NamesTheFirstBadGroupWhateverTheThreadsDo) {
    const Tensor src = normal(DType::kBF16, 1, 20000, 64);
    Coded coded(Codec::best(), src);
    for (const std::size_t group : {170u, 300u, 600u}) coded.set_end(group, coded.end_of(group) + 600);
    ThreadPool pool(3);
    Tensor out(DType::kBF16, 1, 20000, 64);
    try {
        coded.codec.decode_exact(coded.layout, coded.bytes, out.mutable_view(), &pool);
        FAIL() << "nothing was found";
    } catch (const CorruptData& e) {
        EXPECT_NE(std::string(e.what()).find("group 170 of 625"), std::string::npos) << e.what();
    }
}

TEST(ExactTier, WidensToFloat32) {
    for_each_codec([](const Codec& codec) {
        for (const DType type : kTypes) {
            const Tensor src = normal(type, 2, 37, 64);
            const Coded coded(codec, src);
            Tensor out(DType::kF32, 2, 37, 64);
            codec.decode_exact(coded.layout, coded.bytes, out.mutable_view());
            for_each_value(src, [&](auto h, auto t, auto d) { ASSERT_EQ(out.value(h, t, d), src.value(h, t, d)); });
        }
    });
}

TEST(ExactTier, TakesFewBitsForOrdinaryValues) {
    const Coded coded(Codec::best(), normal(DType::kBF16, 2, 512, 64));
    const double bits = 8.0 * static_cast<double>(coded.payload) / (2 * 512 * 64);
    EXPECT_LT(bits, 5.5);
    EXPECT_GT(bits, 1.0);
}

TEST(ExactTier, LeavesScalesAndPlanesAlone) {
    const Tensor src = normal(DType::kBF16, 2, 33, 64);
    const Coded coded(Codec::best(), src);
    TensorSpec spec = spec_of(src.view());
    spec.exact = false;
    const PlaneLayout without(spec);
    std::vector<std::byte> planes(without.bytes());
    Codec::best().encode(src.view(), without, planes);
    EXPECT_EQ(without.bytes(), coded.layout.exact_index().offset);
    EXPECT_TRUE(std::equal(planes.begin(), planes.end(), coded.bytes.begin()));
}

TEST(ExactTier, OfAnEmptyTensorIsEmpty) {
    const Tensor src(DType::kBF16, 2, 0, 64);
    const Coded coded(Codec::best(), src);
    EXPECT_EQ(coded.payload, 0u);
    expect_round_trip(coded, src);
}

TEST(ExactTier, RefusesWhatItCannotCode) {
    const Tensor src = normal(DType::kBF16, 1, 4, 64);
    const Coded good(Codec::best(), src);
    TensorSpec spec = spec_of(src.view());
    spec.dtype = DType::kF32;
    EXPECT_THROW(PlaneLayout{spec}, InvalidArgument);
    spec = spec_of(src.view());
    spec.heads = kMaxHeads;
    spec.tokens = kMaxTokens;
    EXPECT_THROW(PlaneLayout{spec}, InvalidArgument);
    spec = spec_of(src.view());
    spec.exact = false;
    const PlaneLayout without(spec);
    std::vector<std::byte> bytes(without.bytes());
    EXPECT_THROW(Codec::best().encode_exact(src.view(), without, bytes), InvalidArgument);
    Tensor out(DType::kBF16, 1, 4, 64);
    EXPECT_THROW(Codec::best().decode_exact(without, bytes, out.mutable_view()), InvalidArgument);
    bytes.resize(good.layout.bytes() - 1);
    EXPECT_THROW(Codec::best().encode_exact(src.view(), good.layout, bytes), InvalidArgument);
    EXPECT_THROW(Codec::best().decode_exact(good.layout, bytes, out.mutable_view()), InvalidArgument);
    const Tensor half(DType::kF16, 1, 4, 64);
    bytes.resize(good.layout.bytes());
    EXPECT_THROW(Codec::best().encode_exact(half.view(), good.layout, bytes), InvalidArgument);
}

TEST(ExactTier, RefusesBytesThatNoEncoderWrites) {
    for_each_codec([](const Codec& codec) {
        const Tensor src = normal(DType::kBF16, 1, 96, 64);
        const Coded good(codec, src);
        const auto refused = [&](const std::function<void(Coded&)>& damage) {
            Coded bad = good;
            damage(bad);
            Tensor out(DType::kBF16, 1, 96, 64);
            EXPECT_THROW(codec.decode_exact(bad.layout, bad.bytes, out.mutable_view()), CorruptData);
            EXPECT_EQ(out.stray_bytes(), 0u);
        };
        refused([](Coded& c) { c.set_end(1, c.end_of(0) - 1); });
        refused([](Coded& c) { c.set_end(0, UINT32_MAX); });
        refused([](Coded& c) { c.set_end(2, c.end_of(1) + 64 * 32 * 2 / 8 + 1); });
        refused([](Coded& c) { c.set_end(2, c.end_of(2) - 1); });  // too short
        refused([](Coded& c) { c.set_end(2, c.end_of(2) + 1); });  // too long
        refused([](Coded& c) { c.set_end(2, c.end_of(1)); });      // nothing
        refused([](Coded& c) {                                     // all quotients go on: far more bits than there are
            const Extent payload = c.layout.exact_payload();
            std::fill_n(c.bytes.begin() + static_cast<std::ptrdiff_t>(payload.offset), c.payload, std::byte{0xff});
        });
    });
}

TEST(ExactTier, RefusesFillingThatIsNotZero) {
    for_each_codec([](const Codec& codec) {
        // One vector of zeros: 64 quotients that do not go on are one word of 64 bits; of 8 values, 56 bits are left.
        Tensor src(DType::kBF16, 1, 1, 8);
        Coded coded(codec, src);
        ASSERT_EQ(coded.payload, 8u);
        expect_round_trip(coded, src);
        coded.bytes[coded.layout.exact_payload().offset + 7] = std::byte{0x80};
        EXPECT_THROW(codec.decode_exact(coded.layout, coded.bytes, src.mutable_view()), CorruptData);
    });
}

TEST(ExactTier, RestoresNonFiniteVectorsAmongOthers) {
    for_each_codec([](const Codec& codec) {
        Tensor src = normal(DType::kBF16, 1, 64, 64);
        src.set_bits(0, 3, 5, 0x7f80);
        src.set_bits(0, 9, 0, 0xffc1);
        const PlaneLayout layout(spec_of(src.view()));
        std::vector<std::byte> bytes(layout.bytes());
        EXPECT_EQ(codec.encode(src.view(), layout, bytes).nonfinite_vectors, 2u);
        const Coded coded(codec, src);
        expect_round_trip(coded, src);
        const Tensor coarse = coded.reconstruction();
        EXPECT_EQ(coarse.bits(0, 3, 5), 0u);
        EXPECT_NEAR(coarse.value(0, 4, 7), src.value(0, 4, 7), 0.1);
    });
}

}  // namespace
}  // namespace lynx
