// The exact tier on many random values: every kernel writes the same bytes and restores the same bits.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lynx/codec.hpp"

namespace lynx {
namespace {

// Sanitizers slow this down twentyfold and see no more in the hundredth million than in the first.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kValues = 2'000'000;
#else
constexpr std::size_t kValues = 100'000'000;
#endif

/// splitmix64: each call four values of 16 random bits.
class RandomBits {
   public:
    explicit RandomBits(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

   private:
    std::uint64_t state_;
};

/// Random bits throughout, or, as in a cache, values of the same magnitude with a few random bits among them. The
/// first give groups that are stored as they are, the second groups that are coded.
void fill(std::vector<std::uint16_t>& values, DType type, bool alike, RandomBits& random) {
    const auto one = static_cast<std::uint16_t>(type == DType::kBF16 ? 0x3f80 : 0x3c00);
    const unsigned mantissa = type == DType::kBF16 ? 7 : 10;
    for (std::size_t i = 0; i < values.size(); i += 4) {
        const std::uint64_t bits = random.next();
        std::memcpy(&values[i], &bits, sizeof bits);
        if (!alike || bits >> 56 == 0) continue;  // one in 256 stays as it is
        for (std::size_t j = i; j < i + 4; ++j) {
            const unsigned magnitude =
                (one + (((values[j] >> 3) % 4u) << mantissa)) | (values[j] & ((1u << mantissa) - 1));
            values[j] = static_cast<std::uint16_t>((values[j] & 0x8000u) | magnitude);
        }
    }
}

TEST(ExactTierOnRandomBits, EveryKernelWritesTheSameBytesAndRestoresTheSource) {
    constexpr std::uint32_t kHeadDims[] = {64, 128, 256, 96};
    constexpr std::size_t kRound = 1 << 20;
    RandomBits random(20260701);
    std::size_t values = 0;
    std::size_t coded_rounds = 0;
    for (unsigned round = 0; values < kValues; ++round, values += kRound) {
        const DType type = round % 2 == 0 ? DType::kBF16 : DType::kF16;
        const bool alike = round / 2 % 2 == 0;
        const std::uint32_t head_dim = kHeadDims[round / 4 % 4];
        const auto tokens = static_cast<std::uint32_t>(kRound / head_dim);
        std::vector<std::uint16_t> src(std::size_t{tokens} * head_dim);
        fill(src, type, alike, random);
        const PlaneLayout layout({.dtype = type, .heads = 1, .tokens = tokens, .head_dim = head_dim, .exact = true});
        const std::array<std::int64_t, 3> shape{1, tokens, head_dim};
        const std::array<std::int64_t, 3> strides{std::int64_t{tokens} * head_dim, head_dim, 1};
        const TensorView view{reinterpret_cast<const std::byte*>(src.data()), type, shape, strides};
        std::vector<std::byte> expected;
        for (const std::string_view name : Codec::available()) {
            const Codec& codec = Codec::by_name(name);
            std::vector<std::byte> coded(layout.bytes());
            codec.encode(view, layout, coded);
            const std::size_t payload = codec.encode_exact(view, layout, coded);
            if (expected.empty()) {
                expected = coded;
                coded_rounds += payload < layout.exact_payload().bytes / 2 ? 1 : 0;
            }
            ASSERT_TRUE(coded == expected) << name << ", round " << round;
            std::vector<std::uint16_t> out(src.size());
            codec.decode_exact(layout, coded, {reinterpret_cast<std::byte*>(out.data()), type, shape, strides});
            ASSERT_TRUE(out == src) << name << ", round " << round;
        }
    }
    EXPECT_GT(coded_rounds, 0u);
    RecordProperty("values", std::to_string(values));
}

}  // namespace
}  // namespace lynx
