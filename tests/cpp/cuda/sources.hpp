// Tensors for the device's tests: adjacent elements, any other strides, and bits of every kind.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "codec/tensors.hpp"
#include "cuda/host_codec.hpp"

namespace lynx::testing {

enum class Content { kNormal, kAnyBits, kMostlyNormal, kTiny, kConstant };
inline constexpr Content kAllContents[] = {Content::kNormal, Content::kAnyBits, Content::kMostlyNormal, Content::kTiny,
                                           Content::kConstant};
/// The first four have one power of two as a block; then several blocks, odd numbers of chunks, several rows.
inline constexpr std::uint32_t kHeadDims[] = {64,  128, 256, 8,   16,  24,  40,  80,   96,
                                              136, 192, 248, 320, 512, 576, 768, 1000, 1024};

inline void fill(Tensor& tensor, Content content, unsigned seed) {
    const TensorView view = tensor.view();
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t h = 0; h < view.heads(); ++h)
        for (std::int64_t t = 0; t < view.tokens(); ++t)
            for (std::int64_t d = 0; d < view.head_dim(); ++d) {
                const bool any = content == Content::kAnyBits ||
                                 (content == Content::kMostlyNormal && random() % (16 * view.head_dim()) == 0);
                if (any)
                    tensor.set_bits(h, t, d, random());
                else if (content == Content::kConstant)
                    tensor.set(h, t, d, t % 3 == 0 ? 0.0 : -1.5 * static_cast<double>(t));
                else
                    tensor.set(h, t, d,
                               (normal(random) + (d == 3 ? 12.0 : 0.0)) * (content == Content::kTiny ? 1e-7 : 1.0));
            }
}

inline TensorSpec spec_of(const Tensor& tensor) {
    const TensorView view = tensor.view();
    return {.dtype = view.dtype,
            .heads = static_cast<std::uint32_t>(view.heads()),
            .tokens = static_cast<std::uint32_t>(view.tokens()),
            .head_dim = static_cast<std::uint32_t>(view.head_dim())};
}

inline std::size_t differing_values(const Tensor& a, const Tensor& b) {
    const TensorView view = a.view();
    std::size_t wrong = 0;
    for (std::int64_t h = 0; h < view.heads(); ++h)
        for (std::int64_t t = 0; t < view.tokens(); ++t)
            for (std::int64_t d = 0; d < view.head_dim(); ++d) wrong += a.bits(h, t, d) != b.bits(h, t, d);
    return wrong;
}

inline std::string name_of_case(std::uint32_t head_dim, DType type, Content content) {
    return "head_dim " + std::to_string(head_dim) + ", " + std::string(name_of(type)) + ", content " +
           std::to_string(static_cast<int>(content));
}

}  // namespace lynx::testing
