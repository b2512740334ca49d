// Coding a prompt takes no memory after the first call and goes straight from and to the caller's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "allocation/allocations.hpp"
#include "codec/tensors.hpp"
#include "lynx/buffer.hpp"
#include "lynx/codec.hpp"

namespace lynx {
namespace {

using testing::allocations;
using testing::kAllStrides;
using testing::Strides;
using testing::Tensor;

constexpr std::size_t kGuard = 256;
constexpr std::byte kGuardByte{0x5c};
constexpr std::uint32_t kLayers = 3;
constexpr std::uint32_t kHeads = 3;
constexpr std::uint32_t kTokens = 721;  // more than a piece a tensor
constexpr std::uint32_t kHeadDim = 64;

/// A K or V tensor of one layer, the memory that it is coded into and the cache that it is decoded into.
struct CachedTensor {
    PlaneLayout layout;
    Tensor source;
    Tensor destination;
    std::vector<std::byte> guarded;  ///< the coded tensor between two guards

    CachedTensor(Coding coding, bool exact, std::uint8_t anchor_bits, Strides strides, unsigned seed)
        : layout({coding, DType::kBF16, kHeads, kTokens, kHeadDim, anchor_bits, 4, exact}),
          source(DType::kBF16, kHeads, kTokens, kHeadDim, strides),
          destination(DType::kBF16, kHeads, kTokens, kHeadDim, strides),
          guarded(layout.bytes() + 2 * kGuard, kGuardByte) {
        std::minstd_rand random(seed);
        for (std::int64_t h = 0; h < kHeads; ++h)
            for (std::int64_t t = 0; t < kTokens; ++t)
                for (std::int64_t d = 0; d < kHeadDim; ++d)
                    source.set_bits(h, t, d, 0x3f00 + random() % 0x100 + (random() % 2 << 15));  // +-0.5 to +-2
    }

    [[nodiscard]] ByteSpan coded() { return ByteSpan(guarded).subspan(kGuard, layout.bytes()); }

    [[nodiscard]] std::size_t broken_guard_bytes() const {
        const auto broken = [](std::byte b) { return b != kGuardByte; };
        return static_cast<std::size_t>(
            std::count_if(guarded.begin(), guarded.begin() + kGuard, broken) +
            std::count_if(guarded.end() - static_cast<std::ptrdiff_t>(kGuard), guarded.end(), broken));
    }
};

/// K and V of several layers, of all strides.
std::vector<CachedTensor> make_prompt(Coding coding, bool exact = false) {
    std::vector<CachedTensor> prompt;
    prompt.reserve(std::size_t{2} * kLayers);
    for (unsigned i = 0; i < 2 * kLayers; ++i)
        prompt.emplace_back(coding, exact, i % 2 == 0 ? kDefaultKeyAnchorBits : kDefaultValueAnchorBits,
                            kAllStrides[i % std::size(kAllStrides)], i);
    return prompt;
}

void encode_and_decode(const Codec& codec, std::vector<CachedTensor>& prompt, Executor* executor) {
    for (CachedTensor& t : prompt) (void)codec.encode(t.source.view(), t.layout, t.coded(), executor);
    for (unsigned part = 0; part < prompt.front().layout.parts(); ++part)
        for (CachedTensor& t : prompt)
            codec.decode(t.layout, t.coded(), t.layout.planes_through(part), t.destination.mutable_view(), executor);
    for (CachedTensor& t : prompt) {
        if (!t.layout.has_exact()) continue;
        (void)codec.encode_exact(t.source.view(), t.layout, t.coded(), executor);
        codec.decode_exact(t.layout, t.coded(), t.destination.mutable_view(), executor);
    }
}

struct NamedExecutor {
    const char* name;
    Executor* executor;
};

/// Calls check(executor) for none and for pools of several sizes.
void for_each_executor(const std::function<void(Executor*)>& check) {
    ThreadPool one(1);
    ThreadPool three(3);
    for (const NamedExecutor& e : {NamedExecutor{"no executor", nullptr}, {"one thread", &one}, {"three", &three}}) {
        SCOPED_TRACE(e.name);
        check(e.executor);
    }
}

template <class T>
void keep(T* made) {
    asm volatile("" : : "r"(made) : "memory");  // or the compiler leaves the allocation out
}

TEST(Allocations, AreCountedHoweverTheyAreMade) {
    if (!testing::counts_allocations()) GTEST_SKIP() << "sanitizers bring an allocator of their own";
    const auto taken_by = [](const auto& take) {
        const std::size_t before = allocations();
        take();
        return allocations() - before;
    };
    EXPECT_EQ(taken_by([] {}), 0u);
    EXPECT_EQ(taken_by([] { keep(std::make_unique<int>(1).get()); }), 1u);
    EXPECT_EQ(taken_by([] { keep(std::vector<std::byte>(1 << 20).data()); }), 1u);
    struct alignas(128) Wide {
        int value;
    };
    EXPECT_EQ(taken_by([] { keep(std::make_unique<Wide>().get()); }), 1u);
    EXPECT_EQ(taken_by([] {
                  void* const small = std::calloc(3, 5);
                  keep(small);
                  void* const memory = std::realloc(small, 500);
                  keep(memory);
                  std::free(memory);
              }),
              2u);
    EXPECT_EQ(taken_by([] {
                  void* memory = nullptr;
                  ASSERT_EQ(::posix_memalign(&memory, 64, 64), 0);
                  keep(memory);
                  std::free(memory);
              }),
              1u);
    EXPECT_EQ(taken_by([] { keep(Buffer(4096).span().data()); }), 1u);
    ThreadPool pool(2);
    EXPECT_EQ(taken_by([&] { pool.run(7, [](std::size_t) noexcept { keep(std::make_unique<int>(1).get()); }); }), 7u);
}

TEST(CodecAllocation, EncodeAndDecodeOfAPromptTakeNoMemory) {
    if (!testing::counts_allocations()) GTEST_SKIP() << "sanitizers bring an allocator of their own";
    for (const Coding coding : {Coding::kPlanes, Coding::kRaw}) {
        std::vector<CachedTensor> prompt = make_prompt(coding, coding == Coding::kPlanes);
        for_each_executor([&](Executor* executor) {
            for (const std::string_view name : Codec::available()) {
                const Codec& codec = Codec::by_name(name);
                encode_and_decode(codec, prompt, executor);
                const std::size_t before = allocations();
                encode_and_decode(codec, prompt, executor);
                EXPECT_EQ(allocations() - before, 0u) << name << ", coding " << static_cast<int>(coding);
            }
        });
    }
}

// Whatever was there before, the coded bytes are all written, and none beside them.
TEST(CodecAllocation, EncodeWritesTheGivenBufferAndNothingElse) {
    for (const Coding coding : {Coding::kPlanes, Coding::kRaw}) {
        for_each_executor([&](Executor* executor) {
            for (CachedTensor& t : make_prompt(coding)) {
                std::fill(t.coded().begin(), t.coded().end(), std::byte{0x00});
                (void)Codec::best().encode(t.source.view(), t.layout, t.coded(), executor);
                const std::vector<std::byte> first = t.guarded;
                std::fill(t.coded().begin(), t.coded().end(), std::byte{0xff});
                (void)Codec::best().encode(t.source.view(), t.layout, t.coded(), executor);
                EXPECT_EQ(t.guarded, first);
                EXPECT_EQ(t.broken_guard_bytes(), 0u);
            }
        });
    }
}

TEST(CodecAllocation, DecodeWritesTheGivenTensorAndNothingElse) {
    for (const Coding coding : {Coding::kPlanes, Coding::kRaw}) {
        for_each_executor([&](Executor* executor) {
            for (CachedTensor& t : make_prompt(coding)) {
                (void)Codec::best().encode(t.source.view(), t.layout, t.coded());
                const std::vector<std::byte> coded = t.guarded;
                Codec::best().decode(t.layout, t.coded(), t.layout.planes(), t.destination.mutable_view(), executor);
                EXPECT_EQ(t.guarded, coded);
                EXPECT_EQ(t.destination.stray_bytes(), 0u);
                for (const std::uint32_t token : {0u, kTokens / 2, kTokens - 1})
                    EXPECT_NEAR(t.destination.value(kHeads - 1, token, 5), t.source.value(kHeads - 1, token, 5), 0.05);
            }
        });
    }
}

}  // namespace
}  // namespace lynx
