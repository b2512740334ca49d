// Many random 16-bit values for the exact tier, in rounds that know nothing of each other: each is a tensor of one
// head.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::testing {

// Sanitizers slow this down twentyfold and see no more in the hundredth million than in the first.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Values of a round at most. 16 rounds have every dtype, kind of values and head_dim with each other.
inline constexpr std::size_t kRoundValues = kSanitized ? 1 << 17 : 1 << 20;

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
inline void fill_random(std::vector<std::uint16_t>& values, DType type, bool alike, RandomBits& random) {
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

/// The source of one round, and tensors like it.
class RandomRound {
   public:
    explicit RandomRound(unsigned round)
        : type_(round % 2 == 0 ? DType::kBF16 : DType::kF16),
          alike_(round / 2 % 2 == 0),
          head_dim_(kHeadDims[round / 4 % kHeadDims.size()]),
          tokens_(static_cast<std::uint32_t>(kRoundValues / head_dim_)),
          values_(std::size_t{tokens_} * head_dim_) {
        RandomBits random(RandomBits(round).next());
        fill_random(values_, type_, alike_, random);
    }

    /// Are its values of the same magnitude, so that most of its groups are coded?
    [[nodiscard]] bool alike() const { return alike_; }
    [[nodiscard]] const std::vector<std::uint16_t>& values() const { return values_; }
    [[nodiscard]] PlaneLayout layout() const {
        return PlaneLayout({.dtype = type_, .heads = 1, .tokens = tokens_, .head_dim = head_dim_, .exact = true});
    }
    [[nodiscard]] TensorView view() const {
        return {reinterpret_cast<const std::byte*>(values_.data()), type_, shape(), strides()};
    }
    /// Of `values`, which are as many as the round's.
    [[nodiscard]] MutableTensorView view_of(std::vector<std::uint16_t>& values) const {
        return {reinterpret_cast<std::byte*>(values.data()), type_, shape(), strides()};
    }

   private:
    static constexpr std::array<std::uint32_t, 4> kHeadDims{64, 128, 256, 96};

    [[nodiscard]] std::array<std::int64_t, 3> shape() const { return {1, tokens_, head_dim_}; }
    [[nodiscard]] std::array<std::int64_t, 3> strides() const {
        return {std::int64_t{tokens_} * head_dim_, head_dim_, 1};
    }

    DType type_;
    bool alike_;
    std::uint32_t head_dim_;
    std::uint32_t tokens_;
    std::vector<std::uint16_t> values_;
};

}  // namespace lynx::testing
