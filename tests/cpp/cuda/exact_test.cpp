// The device's kernels for the exact tier, run lane by lane on the CPU: the scalar codec's bytes, every bit back, and
// nothing read or written where it should not be, whatever the bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "codec/exact.hpp"
#include "codec/kernels.hpp"
#include "cuda/sources.hpp"
#include "lynx/codec.hpp"

namespace lynx {
namespace {

using testing::AlignedBytes;
using testing::Content;
using testing::HostCodec;
using testing::kAllContents;
using testing::kAllDTypes;
using testing::kHeadDims;
using testing::ShapeChoice;
using testing::Strides;
using testing::Tensor;

constexpr DType kTypes[] = {DType::kBF16, DType::kF16};

const Codec& reference() {
    return Codec::by_name("scalar");
}

struct Coded {
    PlaneLayout layout;
    AlignedBytes bytes;
    std::size_t used;  ///< without what the payload does not fill

    Coded(const Tensor& src, TensorSpec spec)
        : layout((spec.exact = true, spec)), bytes(layout.bytes()), used(layout.exact_payload().offset) {
        reference().encode(src.view(), layout, bytes.span());
        used += reference().encode_exact(src.view(), layout, bytes.span());
    }
};

void expect_same_coding(const HostCodec& device, const Tensor& src, const Coded& expected) {
    AlignedBytes got(expected.layout.bytes());
    device.encode(src.view(), expected.layout, got.span());
    device.encode_exact(src.view(), expected.layout, got.span());
    EXPECT_TRUE(std::ranges::equal(got.span().first(expected.used), expected.bytes.span().first(expected.used)));
    // What the payload does not fill is not touched.
    const ByteSpan rest = got.span().subspan(expected.used);
    EXPECT_TRUE(std::ranges::all_of(rest, [](std::byte b) { return b == std::byte{0xa5}; }));
}

void expect_restored(const HostCodec& device, const Tensor& src, const Coded& coded) {
    const TensorSpec& s = coded.layout.spec();
    Tensor out(s.dtype, s.heads, s.tokens, s.head_dim, Strides::kTokensFirst);
    EXPECT_EQ(device.decode_exact(coded.layout, coded.bytes.span(), out.mutable_view()), cuda::kNoFault);
    EXPECT_EQ(testing::differing_values(out, src), 0u);
    EXPECT_EQ(out.stray_bytes(), 0u);
}

TEST(DeviceExact, IsTheScalarCodecsBytesAndRestoresEveryBit) {
    for (const std::uint32_t head_dim : kHeadDims)
        for (const DType type : kTypes)
            for (const Content content : kAllContents) {
                SCOPED_TRACE(testing::name_of_case(head_dim, type, content));
                Tensor src(type, 3, 27, head_dim, Strides::kTokensFirst);
                fill(src, content, head_dim + 1);
                const Coded coded(src, spec_of(src));
                expect_same_coding(HostCodec(), src, coded);
                expect_restored(HostCodec(), src, coded);
                if (head_dim == 64 || head_dim == 128 || head_dim == 256) {
                    expect_same_coding(HostCodec(ShapeChoice::kGeneral), src, coded);
                    expect_restored(HostCodec(ShapeChoice::kGeneral), src, coded);
                }
            }
}

TEST(DeviceExact, WorksWhereThePayloadIsNotAligned) {
    for (const std::uint16_t sink_tokens : {1, 2, 3, 4}) {
        for (const std::uint32_t head_dim : {8u, 24u, 64u}) {
            Tensor src(DType::kBF16, 1, 35, head_dim);
            fill(src, Content::kMostlyNormal, sink_tokens);
            TensorSpec spec = spec_of(src);
            spec.sink_tokens = sink_tokens;
            spec.anchor_bits = 5;
            const Coded coded(src, spec);
            expect_same_coding(HostCodec(), src, coded);
            expect_restored(HostCodec(), src, coded);
        }
    }
}

TEST(DeviceExact, NumbersItsGroupsAcrossTiles) {
    // 8 coordinates make groups of 32 vectors: three tiles and a bit.
    Tensor src(DType::kBF16, 1, 32 * (3 * cuda::kTileGroups + 5), 8);
    fill(src, Content::kNormal, 3);
    const Coded coded(src, spec_of(src));
    EXPECT_EQ(cuda::exact_workspace_bytes(coded.layout), 16u);
    expect_same_coding(HostCodec(), src, coded);
    expect_restored(HostCodec(), src, coded);
}

TEST(DeviceExact, ConvertsAsTheScalarCodecDoes) {
    for (const std::uint32_t head_dim : {64u, 96u, 576u})
        for (const DType type : kTypes)
            for (const DType to : kAllDTypes) {
                Tensor src(type, 2, 20, head_dim);
                fill(src, Content::kMostlyNormal, head_dim);
                const Coded coded(src, spec_of(src));
                Tensor expected(to, 2, 20, head_dim);
                Tensor got(to, 2, 20, head_dim);
                reference().decode_exact(coded.layout, coded.bytes.span(), expected.mutable_view());
                EXPECT_EQ(HostCodec().decode_exact(coded.layout, coded.bytes.span(), got.mutable_view()),
                          cuda::kNoFault);
                EXPECT_EQ(testing::differing_values(got, expected), 0u);
            }
}

/// The first group that the CPU's decoder refuses.
std::uint32_t fault_of(const PlaneLayout& layout, ConstByteSpan coded) {
    const TensorSpec& s = layout.spec();
    Tensor out(s.dtype, s.heads, s.tokens, s.head_dim);
    const auto fault = codec::decode_exact(codec::kScalarKernels, layout, coded, out.mutable_view(), nullptr);
    return fault ? static_cast<std::uint32_t>(fault->index) : cuda::kNoFault;
}

TEST(DeviceExact, FindsTheSameFirstFaultInDamagedBytes) {
    std::mt19937 random(11);
    std::size_t faults = 0;
    for (const std::uint32_t head_dim : {8u, 64u, 128u, 320u, 1024u}) {
        Tensor src(DType::kBF16, 2, 70, head_dim);
        fill(src, Content::kMostlyNormal, head_dim);
        const Coded good(src, spec_of(src));
        const std::size_t index = good.layout.exact_index().offset;
        for (int round = 0; round < 60; ++round) {
            AlignedBytes bad(good.layout.bytes());
            std::ranges::copy(good.bytes.span(), bad.span().begin());
            const std::size_t from = round % 3 == 0 ? index : round % 3 == 1 ? good.layout.exact_payload().offset : 0;
            const std::size_t to = round % 3 == 0 ? good.layout.exact_index().end() : good.used;
            for (int flips = 0; flips < 1 + round / 10; ++flips)
                bad.span()[from + random() % (to - from)] ^= static_cast<std::byte>(1u << random() % 8);
            Tensor out(DType::kBF16, 2, 70, head_dim);
            const std::uint32_t expected = fault_of(good.layout, bad.span());
            EXPECT_EQ(HostCodec().decode_exact(good.layout, bad.span(), out.mutable_view()), expected)
                << "head_dim " << head_dim << ", round " << round;
            faults += expected != cuda::kNoFault;
        }
    }
    EXPECT_GT(faults, 50u);
}

TEST(DeviceExact, StaysInsideItsMemoryOnAnyBytes) {
    std::mt19937 random(13);
    for (const std::uint32_t head_dim : {8u, 24u, 64u, 128u, 136u, 256u, 1000u})
        for (const DType type : kTypes)
            for (int round = 0; round < 12; ++round) {
                const PlaneLayout layout(
                    {.dtype = type, .heads = 2, .tokens = 41, .head_dim = head_dim, .exact = true});
                AlignedBytes coded(layout.bytes());
                for (std::byte& b : coded.span()) b = static_cast<std::byte>(random());
                if (round % 2 == 0) {  // an index that passes, in front of a payload of noise
                    std::uint32_t end = 0;
                    for (std::size_t g = 0; g < layout.groups(); ++g) {
                        const std::size_t vectors =
                            std::min(layout.group_vectors(), layout.vectors() - g * layout.group_vectors());
                        end += static_cast<std::uint32_t>(random() % (vectors * head_dim / 4 + 1));
                        std::memcpy(coded.span().data() + layout.exact_index().offset + 4 * g, &end, 4);
                    }
                }
                Tensor out(type, 2, 41, head_dim);
                const std::uint32_t expected = fault_of(layout, coded.span());
                EXPECT_EQ(HostCodec().decode_exact(layout, coded.span(), out.mutable_view()), expected);
                EXPECT_EQ(out.stray_bytes(), 0u);
            }
}

}  // namespace
}  // namespace lynx
