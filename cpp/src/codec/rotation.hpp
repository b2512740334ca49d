// The Hadamard rotation's shape: what every kernel has to agree on.
//
// A head vector is cut into blocks of B, the largest power of two that divides head_dim. H, the Hadamard
// matrix of +-1, satisfies H H = B I, so the factors of both directions multiply to 1/B. For an odd log2(B)
// a symmetric 1/sqrt(B) is irrational; two powers of two keep every scaling exact.
#pragma once

#include <bit>
#include <cstdint>

namespace lynx::codec {

/// log2 of the block, 3-10 for any head_dim that PlaneLayout allows.
[[nodiscard]] constexpr unsigned log2_block(std::uint32_t head_dim) noexcept {
    return static_cast<unsigned>(std::countr_zero(head_dim));
}

[[nodiscard]] constexpr float power_of_two(int exponent) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

[[nodiscard]] constexpr float forward_factor(unsigned log2_b) noexcept {
    return power_of_two(-static_cast<int>(log2_b / 2));
}

[[nodiscard]] constexpr float inverse_factor(unsigned log2_b) noexcept {
    return power_of_two(-static_cast<int>((log2_b + 1) / 2));
}

/// What a vector's coordinates are made of once its codes' prefixes c are transformed back, h = H c:
/// x_i = factor * h_i, and x_0 + bias for the first coordinate of each block.
struct Reconstruction {
    float factor;
    float bias;
};

/// `missing` is how many low bits of the codes are not there. They are taken at their midpoint, a constant
/// for all coordinates, which H gathers in the block's first coordinate, as it does with the zero.
/// Every operation here is exact except the sum.
[[nodiscard]] constexpr Reconstruction reconstruction(float scale, float zero, unsigned missing,
                                                      unsigned log2_b) noexcept {
    const float step = power_of_two(static_cast<int>(missing));
    const float centre = zero + scale * ((step - 1.0f) * 0.5f);
    return {scale * step * inverse_factor(log2_b),
            centre * power_of_two(static_cast<int>(log2_b)) * inverse_factor(log2_b)};
}

static_assert(log2_block(96) == 5 && log2_block(576) == 6 && log2_block(1000) == 3);
static_assert(forward_factor(7) * inverse_factor(7) == 1.0f / 128);

}  // namespace lynx::codec
