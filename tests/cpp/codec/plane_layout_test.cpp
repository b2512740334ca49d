#include "lynx/plane_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "lynx/error.hpp"

namespace lynx {
namespace {

TensorSpec spec_of(std::uint32_t heads, std::uint32_t tokens, std::uint32_t head_dim) {
    TensorSpec spec;
    spec.heads = heads;
    spec.tokens = tokens;
    spec.head_dim = head_dim;
    return spec;
}

std::string refusal(const TensorSpec& spec) {
    try {
        const PlaneLayout layout(spec);
    } catch (const InvalidArgument& e) {
        return e.what();
    }
    return "";
}

TEST(PlaneLayout, ScalesZerosAndPlanesTileTheBytesInOrder) {
    for (const std::uint32_t head_dim : {8u, 96u, 1000u}) {
        for (const std::uint32_t tokens : {0u, 1u, 33u}) {
            const PlaneLayout layout(spec_of(3, tokens, head_dim));
            const std::size_t vectors = std::size_t{3} * tokens;
            EXPECT_EQ(layout.vectors(), vectors);
            EXPECT_EQ(layout.scales(), (Extent{0, 2 * vectors}));
            EXPECT_EQ(layout.zeros(), (Extent{2 * vectors, 2 * vectors}));
            std::size_t at = layout.zeros().end();
            for (unsigned p = 0; p < layout.planes(); ++p) {
                EXPECT_EQ(layout.plane(p), (Extent{at, vectors * head_dim / 8}));
                at = layout.plane(p).end();
            }
            EXPECT_EQ(layout.planes(), 8u);
            EXPECT_EQ(layout.bytes(), at);
            EXPECT_EQ(layout.plane(8), (Extent{at, 0}));
        }
    }
}

TEST(PlaneLayout, SinksStandBeforeThePlanesAndBelongToTheAnchor) {
    for (const std::uint32_t tokens : {0u, 3u, 33u}) {
        for (const std::uint8_t bits : {1, 5, 8}) {
            for (const std::uint16_t sinks : {0, 4, 1024}) {
                TensorSpec spec = spec_of(3, tokens, 96);
                spec.anchor_bits = bits;
                spec.sink_tokens = sinks;
                const PlaneLayout layout(spec);
                const std::uint32_t whole = bits == 8 ? 0 : std::min<std::uint32_t>(sinks, tokens);
                EXPECT_EQ(layout.sink_tokens(), whole);
                EXPECT_EQ(layout.sinks(), (Extent{layout.zeros().end(), std::size_t{3} * whole * (8u - bits) * 12}));
                EXPECT_EQ(layout.plane(0).offset, layout.sinks().end());
                for (unsigned p = 1; p <= 8; ++p) EXPECT_EQ(layout.plane(p).offset, layout.plane(p - 1).end());
                EXPECT_EQ(layout.bytes(), layout.plane(7).end());
                EXPECT_EQ(layout.part(0), (Extent{0, layout.plane(bits - 1u).end()}));
                EXPECT_EQ(layout.part(1), (Extent{layout.part(0).end(), (8u - bits) * layout.plane(0).bytes}));
            }
        }
    }
}

TEST(PlaneLayout, PartsSplitAfterTheAnchorsPlanes) {
    for (std::uint8_t bits = 1; bits <= 8; ++bits) {
        TensorSpec spec = spec_of(2, 5, 64);
        spec.anchor_bits = bits;
        const PlaneLayout layout(spec);
        ASSERT_EQ(layout.parts(), 2u);
        EXPECT_EQ(layout.part(0), (Extent{0, layout.plane(bits - 1u).end()}));
        EXPECT_EQ(layout.part(1).offset, layout.part(0).end());
        EXPECT_EQ(layout.part(1).end(), layout.bytes());
        EXPECT_EQ(layout.part(1).bytes, (8u - bits) * layout.plane(0).bytes);
        EXPECT_EQ(layout.planes_through(0), bits);
        EXPECT_EQ(layout.planes_through(1), 8u);
        EXPECT_EQ(layout.part(2), (Extent{layout.bytes(), 0}));
    }
}

TEST(PlaneLayout, TheExactTierIsAPartBehindThePlanes) {
    TensorSpec spec = spec_of(2, 5, 64);
    spec.dtype = DType::kBF16;
    spec.exact = true;
    const PlaneLayout layout(spec);
    ASSERT_EQ(layout.parts(), 3u);
    EXPECT_EQ(layout.part(1).end(), layout.plane(7).end());
    EXPECT_EQ(layout.part(2).offset, layout.exact_index().offset);
    EXPECT_EQ(layout.part(2).end(), layout.bytes());
    EXPECT_EQ(layout.planes_through(2), 8u);
}

TEST(PlaneLayout, RawIsOnePlaneAndOnePartOfTheSourcesBytes) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        TensorSpec spec = spec_of(3, 7, 40);
        spec.coding = Coding::kRaw;
        spec.dtype = dtype;
        spec.anchor_bits = 0;     // ignored
        spec.sink_tokens = 5000;  // ignored
        const PlaneLayout layout(spec);
        const Extent whole{0, 3 * 7 * 40 * size_of(dtype)};
        EXPECT_EQ(layout.bytes(), whole.bytes);
        EXPECT_EQ(layout.scales().bytes + layout.zeros().bytes + layout.sinks().bytes, 0u);
        EXPECT_EQ(layout.planes(), 1u);
        EXPECT_EQ(layout.plane(0), whole);
        EXPECT_EQ(layout.parts(), 1u);
        EXPECT_EQ(layout.part(0), whole);
        EXPECT_EQ(layout.planes_through(0), 1u);
    }
}

TEST(PlaneLayout, TheLargestTensorDoesNotOverflow) {
    TensorSpec spec = spec_of(kMaxHeads, kMaxTokens, kMaxHeadDim);
    EXPECT_EQ(PlaneLayout(spec).bytes(), (std::size_t{1} << 42) * (4 + 1024));
    spec.coding = Coding::kRaw;
    spec.dtype = DType::kF32;
    EXPECT_EQ(PlaneLayout(spec).bytes(), std::size_t{1} << 54);
}

TEST(PlaneLayout, RefusesWhatIsOutOfRangeByNameAndValue) {
    const auto expect = [](const TensorSpec& spec, const std::string& words) {
        EXPECT_NE(refusal(spec).find(words), std::string::npos) << "got: " << refusal(spec);
    };
    expect(spec_of(3, 7, 7), "head_dim is 7");
    expect(spec_of(3, 7, 0), "head_dim is 0");
    expect(spec_of(3, 7, 12), "head_dim is 12");
    expect(spec_of(3, 7, 1032), "head_dim is 1032");
    expect(spec_of(0, 7, 64), "heads is 0");
    expect(spec_of(kMaxHeads + 1, 7, 64), "heads is 65537");
    expect(spec_of(3, kMaxTokens + 1, 64), "tokens is 67108865");
    TensorSpec spec = spec_of(3, 7, 64);
    spec.anchor_bits = 0;
    expect(spec, "anchor_bits is 0");
    spec.anchor_bits = 9;
    expect(spec, "anchor_bits is 9");
    spec = spec_of(3, 7, 64);
    spec.sink_tokens = 1025;
    expect(spec, "sink_tokens is 1025");
    spec = spec_of(3, 7, 64);
    spec.dtype = static_cast<DType>(3);
    expect(spec, "dtype is 3");
    spec = spec_of(3, 7, 64);
    spec.coding = static_cast<Coding>(2);
    expect(spec, "coding is 2");
}

}  // namespace
}  // namespace lynx
