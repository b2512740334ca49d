// What the codec promises besides its bytes: names, refusals, independence of the caller's thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>

#include "codec/tensors.hpp"
#include "lynx/codec.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace {

using testing::Tensor;

template <class Call>
void expect_refusal(const Call& call, const std::string& words) {
    try {
        call();
        ADD_FAILURE() << "nothing was thrown; expected: " << words;
    } catch (const InvalidArgument& e) {
        EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << "got: " << e.what();
    }
}

PlaneLayout layout_of(Coding coding, DType dtype = DType::kBF16) {
    return PlaneLayout({coding, dtype, 2, 5, 64, 4});
}

TEST(CodecRegistry, KnowsTheScalarKernelsAndRefusesOthersByName) {
    const auto names = Codec::available();
    EXPECT_EQ(std::count(names.begin(), names.end(), "scalar"), 1);
    for (const auto name : names) EXPECT_EQ(Codec::by_name(name).name(), name);
    expect_refusal([] { (void)Codec::by_name("z80"); }, "'z80'");
    expect_refusal([] { (void)Codec::by_name("z80"); }, "scalar");
}

// best() is chosen once a process, so each choice is made in a process of its own.
TEST(CodecRegistryDeathTest, TheEnvironmentForcesAnInstructionSet) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            ::setenv("LYNX_ISA", "scalar", 1);
            std::_Exit(Codec::best().name() == "scalar" ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        {
            ::setenv("LYNX_ISA", "z80", 1);
            try {
                (void)Codec::best();
            } catch (const InvalidArgument& e) {
                std::fputs(e.what(), stderr);
                std::_Exit(0);
            }
            std::_Exit(1);
        },
        ::testing::ExitedWithCode(0), "LYNX_ISA.*'z80'.*scalar");
}

TEST(CodecErrors, EncodeNamesWhatDoesNotFit) {
    const Codec& codec = Codec::best();
    const PlaneLayout layout = layout_of(Coding::kPlanes);
    std::vector<std::byte> coded(layout.bytes() + 1);
    const std::span<std::byte> fits(coded.data(), layout.bytes());
    const Tensor src(DType::kBF16, 2, 5, 64);
    const auto bytes = std::to_string(layout.bytes());
    expect_refusal([&] { codec.encode(src.view(), layout, coded); }, "takes exactly " + bytes);
    expect_refusal([&] { codec.encode(src.view(), layout, fits.first(3)); }, "dst holds 3 bytes");
    expect_refusal([&] { codec.encode(Tensor(DType::kBF16, 2, 6, 64).view(), layout, fits); },
                   "src.shape is [2, 6, 64]");
    expect_refusal([&] { codec.encode(Tensor(DType::kBF16, 5, 2, 64).view(), layout, fits); },
                   "layout is of [2, 5, 64]");
    TensorView view = src.view();
    view.dtype = static_cast<DType>(9);
    expect_refusal([&] { codec.encode(view, layout, fits); }, "src.dtype is 9");
    view = src.view();
    view.data = nullptr;
    expect_refusal([&] { codec.encode(view, layout, fits); }, "src.data is null");
    const PlaneLayout raw = layout_of(Coding::kRaw, DType::kF16);
    std::vector<std::byte> raw_coded(raw.bytes());
    expect_refusal([&] { codec.encode(src.view(), raw, raw_coded); }, "src.dtype is bf16");
    expect_refusal([&] { codec.encode(src.view(), raw, raw_coded); }, "fp16");
}

TEST(CodecErrors, DecodeNamesWhatDoesNotFit) {
    const Codec& codec = Codec::best();
    const PlaneLayout layout = layout_of(Coding::kPlanes);
    const std::vector<std::byte> coded(layout.bytes());
    Tensor dst(DType::kF32, 2, 5, 64);
    expect_refusal([&] { codec.decode(layout, coded, 0, dst.mutable_view()); }, "planes is 0");
    expect_refusal([&] { codec.decode(layout, coded, 9, dst.mutable_view()); }, "planes is 9");
    expect_refusal([&] { codec.decode(layout, std::span(coded).first(7), 8, dst.mutable_view()); },
                   "src holds 7 bytes");
    Tensor other(DType::kF32, 2, 5, 72);
    expect_refusal([&] { codec.decode(layout, coded, 8, other.mutable_view()); }, "dst.shape is [2, 5, 72]");
    const PlaneLayout raw = layout_of(Coding::kRaw);
    const std::vector<std::byte> raw_coded(raw.bytes());
    expect_refusal([&] { codec.decode(raw, raw_coded, 2, dst.mutable_view()); }, "planes is 2");
}

// Subnormal inputs and ties are where another rounding mode or flushing would show.
TEST(Codec, BytesDoNotDependOnTheCallersFloatEnvironment) {
    Tensor src(DType::kF32, 2, 33, 64);
    src.fill_normal(31);
    for (int d = 0; d < 64; ++d) src.set(0, 3, d, 1e-39 * d);
    const PlaneLayout whole({Coding::kPlanes, DType::kF32, 2, 33, 64, 4});
    std::vector<std::byte> expected(whole.bytes());
    std::vector<std::byte> got(whole.bytes());
    Tensor expected_values(DType::kF32, 2, 33, 64);
    Tensor got_values(DType::kF32, 2, 33, 64);
    (void)Codec::best().encode(src.view(), whole, expected);
    Codec::best().decode(whole, expected, 3, expected_values.mutable_view());
    std::fesetround(FE_UPWARD);
#ifdef __SSE2__
    const unsigned flush = 0x8040;  // FTZ and DAZ, as torch.set_flush_denormal sets them
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | flush);
    const unsigned before = __builtin_ia32_stmxcsr();
#endif
    (void)Codec::best().encode(src.view(), whole, got);
    Codec::best().decode(whole, got, 3, got_values.mutable_view());
#ifdef __SSE2__
    const unsigned after = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(after & ~flush);
    EXPECT_EQ(before & 0xffc0, after & 0xffc0);  // all but the sticky flags
#endif
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(got, expected);
    for (int t = 0; t < 33; ++t)
        for (int d = 0; d < 64; ++d) ASSERT_EQ(got_values.bits(1, t, d), expected_values.bits(1, t, d));
}

// It means nothing there, and numbers that overflow when they are multiplied are met in practice.
TEST(Codec, TakesAnyStrideForAnAxisOfOneElement) {
    const PlaneLayout layout({.heads = 1, .tokens = 1, .head_dim = 64});
    const PlaneLayout empty({.heads = 2, .tokens = 0, .head_dim = 64});
    std::vector<std::byte> coded(layout.bytes());
    std::vector<std::byte> out(64 * 2, std::byte{1});
    const std::array<std::int64_t, 3> strides{INT64_MAX, INT64_MIN, 1};
    Codec::best().decode(layout, coded, 8, {out.data(), DType::kBF16, {1, 1, 64}, strides});
    EXPECT_EQ(out, std::vector<std::byte>(64 * 2));
    Codec::best().encode({out.data(), DType::kBF16, {1, 1, 64}, strides}, layout, coded);
    EXPECT_EQ(coded, std::vector<std::byte>(layout.bytes()));
    Codec::best().decode(empty, {}, 8, {out.data(), DType::kBF16, {2, 0, 64}, {INT64_MAX, INT64_MAX, INT64_MAX}});
}

TEST(Codec, MayBeCalledFromManyThreadsAtOnce) {
    Tensor src(DType::kBF16, 2, 33, 128);
    src.fill_normal(37);
    const PlaneLayout layout({Coding::kPlanes, DType::kBF16, 2, 33, 128, 4});
    std::vector<std::vector<std::byte>> coded(4, std::vector<std::byte>(layout.bytes()));
    {
        std::vector<std::jthread> threads;
        for (auto& bytes : coded) threads.emplace_back([&] { (void)Codec::best().encode(src.view(), layout, bytes); });
    }
    for (const auto& bytes : coded) EXPECT_EQ(bytes, coded.front());
}

TEST(CodecContract, RefusesAViewWhoseStridesWereNotGiven) {
    const std::vector<std::byte> values(std::size_t{2} * 3 * 64 * 2);
    TensorView view{values.data(), DType::kBF16, {2, 3, 64}, {}};
    const PlaneLayout layout({.heads = 2, .tokens = 3, .head_dim = 64});
    std::vector<std::byte> coded(layout.bytes());
    EXPECT_THROW(Codec::best().encode(view, layout, coded), InvalidArgument);
    view.strides = contiguous_strides(view.shape);
    EXPECT_NO_THROW(Codec::best().encode(view, layout, coded));
}

}  // namespace
}  // namespace lynx
