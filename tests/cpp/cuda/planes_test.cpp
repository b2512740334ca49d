// The device's kernels for planes and raw coding, run lane by lane on the CPU: the scalar codec's bytes and values.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/sources.hpp"
#include "lynx/codec.hpp"
#include "lynx/error.hpp"

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

const Codec& reference() {
    return Codec::by_name("scalar");
}

void expect_same_coding(const HostCodec& device, const Tensor& src, const PlaneLayout& layout) {
    AlignedBytes expected(layout.bytes());
    AlignedBytes got(layout.bytes());
    const EncodeStats stats = reference().encode(src.view(), layout, expected.span());
    EXPECT_EQ(device.encode(src.view(), layout, got.span()), stats.nonfinite_vectors);
    EXPECT_TRUE(std::ranges::equal(got.span(), expected.span()));
}

void expect_same_decoding(const HostCodec& device, const PlaneLayout& layout, ConstByteSpan coded, unsigned planes,
                          DType type) {
    const TensorSpec& s = layout.spec();
    for (const Strides strides : {Strides::kContiguous, Strides::kTokensFirst}) {
        Tensor expected(type, s.heads, s.tokens, s.head_dim, strides);
        Tensor got(type, s.heads, s.tokens, s.head_dim, strides);
        reference().decode(layout, coded, planes, expected.mutable_view());
        device.decode(layout, coded, planes, got.mutable_view());
        EXPECT_EQ(testing::differing_values(got, expected), 0u)
            << planes << " planes to " << name_of(type) << ", strides " << static_cast<int>(strides);
        EXPECT_EQ(got.stray_bytes(), 0u);
    }
}

TEST(DevicePlanes, AreTheScalarCodecsBytes) {
    for (const std::uint32_t head_dim : kHeadDims)
        for (const DType type : kAllDTypes)
            for (const Content content : kAllContents) {
                SCOPED_TRACE(testing::name_of_case(head_dim, type, content));
                for (const Strides strides : {Strides::kContiguous, Strides::kTokensFirst}) {
                    Tensor src(type, 2, 37, head_dim, strides);
                    fill(src, content, head_dim);
                    TensorSpec spec = spec_of(src);
                    spec.sink_tokens = 5;
                    expect_same_coding(HostCodec(), src, PlaneLayout(spec));
                    if (head_dim <= 256 && (head_dim & (head_dim - 1)) == 0)
                        expect_same_coding(HostCodec(ShapeChoice::kGeneral), src, PlaneLayout(spec));
                }
            }
}

TEST(DevicePlanes, DecodeToTheScalarCodecsValuesFromAnyNumberOfPlanes) {
    for (const std::uint32_t head_dim : kHeadDims) {
        Tensor src(DType::kBF16, 2, 19, head_dim);
        fill(src, Content::kMostlyNormal, head_dim);
        for (const std::uint16_t sink_tokens : {0, 3}) {
            TensorSpec spec = spec_of(src);
            spec.sink_tokens = sink_tokens;
            const PlaneLayout layout(spec);
            AlignedBytes coded(layout.bytes());
            reference().encode(src.view(), layout, coded.span());
            for (unsigned planes = 1; planes <= kPlaneCount; ++planes) {
                SCOPED_TRACE(testing::name_of_case(head_dim, DType::kBF16, Content::kMostlyNormal));
                for (const DType type : kAllDTypes)
                    expect_same_decoding(HostCodec(), layout, coded.span(), planes, type);
            }
        }
    }
}

TEST(DevicePlanes, DecodeAnyFiniteScaleZeroAndCodes) {
    std::mt19937 random(1);
    for (const std::uint32_t head_dim : kHeadDims) {
        const PlaneLayout layout({.heads = 1, .tokens = 33, .head_dim = head_dim});
        AlignedBytes coded(layout.bytes());
        for (std::byte& b : coded.span()) b = static_cast<std::byte>(random());
        for (std::size_t i = 0; i < layout.zeros().end(); i += 2)
            coded.span()[i + 1] &= std::byte{0xbb};  // an exponent that is not all ones
        for (const DType type : kAllDTypes)
            for (const unsigned planes : {1u, 4u, 8u})
                expect_same_decoding(HostCodec(), layout, coded.span(), planes, type);
    }
}

TEST(DevicePlanes, AreTheSameFromATensorAtAnyAddress) {
    for (const std::size_t offset : {0u, 1u, 2u, 4u}) {
        AlignedBytes memory(4096);
        std::mt19937 random(7);
        for (std::byte& b : memory.span()) b = static_cast<std::byte>(random());
        const TensorView src{memory.span().data() + 2 * offset, DType::kBF16, {1, 9, 64}, {0, 64 + 8, 1}};
        const PlaneLayout layout({.heads = 1, .tokens = 9, .head_dim = 64});
        AlignedBytes expected(layout.bytes());
        AlignedBytes got(layout.bytes());
        reference().encode(src, layout, expected.span());
        HostCodec().encode(src, layout, got.span());
        EXPECT_TRUE(std::ranges::equal(got.span(), expected.span())) << offset;
    }
}

TEST(DeviceRaw, CopiesAndConvertsAsTheScalarCodecDoes) {
    for (const std::uint32_t head_dim : {8u, 64u, 96u, 576u})
        for (const DType type : kAllDTypes) {
            Tensor src(type, 2, 13, head_dim, Strides::kTokensFirst);
            fill(src, Content::kAnyBits, head_dim);
            TensorSpec spec = spec_of(src);
            spec.coding = Coding::kRaw;
            const PlaneLayout layout(spec);
            expect_same_coding(HostCodec(), src, layout);
            AlignedBytes coded(layout.bytes());
            reference().encode(src.view(), layout, coded.span());
            for (const DType to : kAllDTypes) expect_same_decoding(HostCodec(), layout, coded.span(), 1, to);
        }
}

TEST(DeviceArguments, WhatDoesNotFitIsRefusedInWords) {
    Tensor src(DType::kBF16, 2, 4, 64);
    Tensor outer(DType::kBF16, 2, 4, 64, Strides::kDimOuter);
    const PlaneLayout layout(spec_of(src));
    AlignedBytes coded(layout.bytes() + 16);
    const ByteSpan good = coded.span().first(layout.bytes());
    EXPECT_NO_THROW(static_cast<void>(cuda::encode_job(src.view(), layout, good, nullptr)));
    EXPECT_THROW(static_cast<void>(cuda::encode_job(outer.view(), layout, good, nullptr)), InvalidArgument);
    EXPECT_THROW(static_cast<void>(cuda::encode_job(src.view(), layout, coded.span(), nullptr)), InvalidArgument);
    EXPECT_THROW(
        static_cast<void>(cuda::encode_job(src.view(), layout, coded.span().subspan(8, layout.bytes()), nullptr)),
        InvalidArgument);
    EXPECT_THROW(static_cast<void>(cuda::decode_job(layout, good, 9, src.mutable_view())), InvalidArgument);
    EXPECT_THROW(static_cast<void>(cuda::exact_encode_job(src.view(), layout, good, {})), InvalidArgument);
    MutableTensorView odd = src.mutable_view();
    odd.data += 1;
    EXPECT_THROW(static_cast<void>(cuda::decode_job(layout, good, 8, odd)), InvalidArgument);
}

}  // namespace
}  // namespace lynx
