// The codec on several threads: the same bytes and values whatever the executor is.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <memory>
#include <stdexcept>
#include <thread>

#include "codec/pieces.hpp"
#include "codec/tensors.hpp"
#include "lynx/codec.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace {

using testing::kAllDTypes;
using testing::kAllStrides;
using testing::Strides;
using testing::Tensor;

/// One by one on the caller's thread, the last first.
class Backwards : public Executor {
   public:
    void run(std::size_t tasks, Task task) override {
        for (std::size_t i = tasks; i-- > 0;) task(i);
        counts.push_back(tasks);
    }
    std::vector<std::size_t> counts;  ///< of each run
};

/// A thread for each task, none of which rounds or treats subnormals as the codec wants them.
class OddThreads : public Executor {
   public:
    void run(std::size_t tasks, Task task) override {
        std::vector<std::jthread> threads;
        threads.reserve(tasks);
        for (std::size_t i = 0; i < tasks; ++i)
            threads.emplace_back([i, task, this] {
                std::fesetround(FE_UPWARD);
#ifdef __SSE2__
                __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // FTZ and DAZ
#endif
                task(i);
                if (std::fegetround() != FE_UPWARD) ++changed;
            });
    }
    std::atomic<unsigned> changed{0};  ///< threads that came back with another environment
};

class Refusing : public Executor {
   public:
    void run(std::size_t, Task) override { throw std::runtime_error("the pool is closed"); }
};

// Values that are made fast: the tensors have to be of several pieces.
void fill(Tensor& tensor, const TensorView& view, unsigned seed) {
    std::minstd_rand random(seed);
    for (std::int64_t h = 0; h < view.heads(); ++h)
        for (std::int64_t t = 0; t < view.tokens(); ++t)
            for (std::int64_t d = 0; d < view.head_dim(); ++d)
                tensor.set(h, t, d, static_cast<double>(random() % 4001) / 1000 - 2);
}

Tensor filled(DType dtype, std::uint32_t heads, std::uint32_t tokens, std::uint32_t head_dim,
              Strides strides = Strides::kContiguous) {
    Tensor tensor(dtype, heads, tokens, head_dim, strides);
    fill(tensor, tensor.view(), head_dim + tokens);
    return tensor;
}

PlaneLayout layout_of(const Tensor& tensor, Coding coding = Coding::kPlanes) {
    const TensorView view = tensor.view();
    return PlaneLayout({coding, view.dtype, static_cast<std::uint32_t>(view.heads()),
                        static_cast<std::uint32_t>(view.tokens()), static_cast<std::uint32_t>(view.head_dim()), 3, 4});
}

std::vector<std::byte> encoded(const Codec& codec, const Tensor& src, const PlaneLayout& layout, Executor* executor) {
    std::vector<std::byte> coded(layout.bytes(), std::byte{0xa5});
    EXPECT_EQ(codec.encode(src.view(), layout, coded, executor).nonfinite_vectors, 0u);
    return coded;
}

/// All memory of the tensor that `planes` planes are decoded into.
std::vector<std::byte> decoded(const Codec& codec, const PlaneLayout& layout, const std::vector<std::byte>& coded,
                               unsigned planes, DType dtype, Strides strides, Executor* executor) {
    const TensorSpec& spec = layout.spec();
    Tensor dst(dtype, spec.heads, spec.tokens, spec.head_dim, strides);
    codec.decode(layout, coded, planes, dst.mutable_view(), executor);
    EXPECT_EQ(dst.stray_bytes(), 0u);
    return dst.bytes();
}

/// What the caller's thread makes of a tensor, for others to be compared with.
struct Expected {
    const Codec& codec;
    const Tensor& src;
    Strides strides;  ///< of what is decoded into
    PlaneLayout layout;
    std::vector<std::byte> coded;
    std::vector<std::byte> anchor;
    std::vector<std::byte> all;

    Expected(const Codec& c, const Tensor& s, Coding coding, Strides to = Strides::kContiguous)
        : codec(c), src(s), strides(to), layout(layout_of(s, coding)) {
        coded = encoded(codec, src, layout, nullptr);
        anchor = decoded(codec, layout, coded, layout.planes_through(0), src.view().dtype, strides, nullptr);
        all = decoded(codec, layout, coded, layout.planes(), src.view().dtype, strides, nullptr);
    }

    void expect_with(Executor& executor) const {
        const DType dtype = src.view().dtype;
        EXPECT_EQ(encoded(codec, src, layout, &executor), coded);
        EXPECT_EQ(decoded(codec, layout, coded, layout.planes_through(0), dtype, strides, &executor), anchor);
        EXPECT_EQ(decoded(codec, layout, coded, layout.planes(), dtype, strides, &executor), all);
    }
};

TEST(CodecThreads, GiveTheSameWhateverTheirCount) {
    std::vector<std::unique_ptr<ThreadPool>> pools;
    for (const unsigned threads : {1u, 2u, 3u, 8u}) pools.push_back(std::make_unique<ThreadPool>(threads));
    struct Shape {
        std::uint32_t heads, tokens, head_dim;
    };
    for (const std::string_view name : Codec::available()) {
        for (const Shape& shape : {Shape{3, 721, 64}, Shape{1, 3301, 40}, Shape{531, 1, 256}, Shape{2, 81, 1024}}) {
            const Tensor src = filled(DType::kF32, shape.heads, shape.tokens, shape.head_dim);
            for (const Coding coding : {Coding::kPlanes, Coding::kRaw}) {
                const Expected expected(Codec::by_name(name), src, coding);
                for (const auto& pool : pools) {
                    SCOPED_TRACE(::testing::Message()
                                 << name << ", " << pool->concurrency() << " threads, " << shape.heads << " x "
                                 << shape.tokens << " x " << shape.head_dim << ", coding " << static_cast<int>(coding));
                    expected.expect_with(*pool);
                }
            }
        }
    }
}

TEST(CodecThreads, GiveTheSameOfAnyStridesAndDType) {
    ThreadPool pool(3);
    for (const DType dtype : kAllDTypes) {
        for (const Strides strides : kAllStrides) {
            SCOPED_TRACE(::testing::Message() << name_of(dtype) << " strides " << static_cast<int>(strides));
            const Tensor src = filled(dtype, 3, 403, 128, strides);
            for (const Coding coding : {Coding::kPlanes, Coding::kRaw})
                Expected(Codec::best(), src, coding, strides).expect_with(pool);
        }
    }
}

TEST(CodecThreads, MayBeTheCallersOwnInAnyOrder) {
    const Tensor src = filled(DType::kF32, 3, 1021, 64);
    Backwards backwards;
    for (const Coding coding : {Coding::kPlanes, Coding::kRaw})
        Expected(Codec::best(), src, coding).expect_with(backwards);
    // 3 * 1021 vectors of 256 bytes in pieces of 1024; encode once, decode twice, of each coding.
    EXPECT_EQ(backwards.counts, std::vector<std::size_t>(6, 3));
}

TEST(CodecThreads, DoNotBringTheirFloatEnvironment) {
    Tensor src = filled(DType::kF32, 3, 1021, 64);
    for (int d = 0; d < 64; ++d) src.set(1, 3, d, 1e-39 * d);
    OddThreads odd;
    for (const Coding coding : {Coding::kPlanes, Coding::kRaw}) Expected(Codec::best(), src, coding).expect_with(odd);
    EXPECT_EQ(odd.changed, 0u);
}

TEST(CodecThreads, CountNonfiniteVectorsOfAllPieces) {
    Tensor src = filled(DType::kF32, 3, 1021, 64);
    for (const int token : {0, 5, 700, 1020}) src.set_bits(token % 3, token, 7, 0x7fc00000);
    const PlaneLayout layout = layout_of(src);
    std::vector<std::byte> coded(layout.bytes());
    ThreadPool pool(3);
    EXPECT_EQ(Codec::best().encode(src.view(), layout, coded).nonfinite_vectors, 4u);
    EXPECT_EQ(Codec::best().encode(src.view(), layout, coded, &pool).nonfinite_vectors, 4u);
}

TEST(CodecThreads, AreNotAskedForASmallTensor) {
    for (const std::uint32_t tokens : {0u, 1u, 512u}) {
        const Tensor src = filled(DType::kF32, 2, tokens, 64);
        Backwards backwards;
        for (const Coding coding : {Coding::kPlanes, Coding::kRaw})
            Expected(Codec::best(), src, coding).expect_with(backwards);
        EXPECT_TRUE(backwards.counts.empty()) << tokens << " tokens";
    }
}

TEST(CodecThreads, WhatAnExecutorThrowsReachesTheCaller) {
    const Tensor src = filled(DType::kF32, 3, 1021, 64);
    const PlaneLayout layout = layout_of(src);
    std::vector<std::byte> coded(layout.bytes());
    Tensor dst(DType::kF32, 3, 1021, 64);
    Refusing refusing;
    EXPECT_THROW(Codec::best().encode(src.view(), layout, coded, &refusing), std::runtime_error);
    EXPECT_THROW(Codec::best().decode(layout, coded, 8, dst.mutable_view(), &refusing), std::runtime_error);

    const Tensor half = filled(DType::kF16, 3, 1021, 128);
    const PlaneLayout exact({.dtype = DType::kF16, .heads = 3, .tokens = 1021, .head_dim = 128, .exact = true});
    coded.resize(exact.bytes());
    EXPECT_THROW(Codec::best().encode_exact(half.view(), exact, coded, &refusing), std::runtime_error);
    EXPECT_THROW(Codec::best().decode_exact(exact, coded, dst.mutable_view(), &refusing), InvalidArgument);
    Tensor restored(DType::kF16, 3, 1021, 128);
    EXPECT_THROW(Codec::best().decode_exact(exact, coded, restored.mutable_view(), &refusing), std::runtime_error);
}

/// The coded tensor up to where the exact tier ends.
std::vector<std::byte> exactly_encoded(const Tensor& src, const PlaneLayout& layout, Executor* executor) {
    std::vector<std::byte> coded(layout.bytes(), std::byte{0xa5});
    (void)Codec::best().encode(src.view(), layout, coded, executor);
    const std::size_t payload = Codec::best().encode_exact(src.view(), layout, coded, executor);
    coded.resize(layout.exact_payload().offset + payload);
    return coded;
}

TEST(CodecThreads, GiveTheSameExactTier) {
    ThreadPool two(2);
    ThreadPool three(3);
    Backwards backwards;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const Strides strides : {Strides::kContiguous, Strides::kTokensFirst, Strides::kDimOuter}) {
            const Tensor src = filled(dtype, 3, 1409, 64, strides);
            const PlaneLayout layout({Coding::kPlanes, dtype, 3, 1409, 64, 3, 4, true});
            const auto expected = exactly_encoded(src, layout, nullptr);
            for (Executor* executor :
                 {static_cast<Executor*>(&two), static_cast<Executor*>(&three), static_cast<Executor*>(&backwards)}) {
                EXPECT_EQ(exactly_encoded(src, layout, executor), expected);
                auto coded = expected;
                coded.resize(layout.bytes());
                Tensor dst(dtype, 3, 1409, 64, strides);
                Codec::best().decode_exact(layout, coded, dst.mutable_view(), executor);
                EXPECT_EQ(dst.bytes(), src.bytes());
            }
        }
    }
    EXPECT_EQ(backwards.counts.size(), 3u * 6);  // all three calls were large enough to be cut
}

TEST(Pieces, AreAllVectorsOnceAndBeginAtUnits) {
    for (const std::size_t vector_bytes : {16u, 80u, 128u, 256u, 1152u, 4096u}) {
        for (const std::size_t vectors : {0u, 1u, 64u, 65u, 1024u, 2048u, 2049u, 16384u, 20011u, 33333u}) {
            Backwards backwards;
            std::vector<int> seen(vectors, 0);
            codec::for_each_piece(&backwards, vectors, vector_bytes, [&](const codec::Piece& piece) noexcept {
                EXPECT_EQ(piece.first % codec::kPieceUnit, 0u);
                for (std::size_t i = 0; i < piece.count; ++i) ++seen.at(piece.first + i);
            });
            EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(vectors))
                << vectors << " of " << vector_bytes;
        }
    }
}

}  // namespace
}  // namespace lynx
