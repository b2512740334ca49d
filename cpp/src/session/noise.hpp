// Noise that is looked up and not drawn: for a seed and a position of the text, each token has its own.
#pragma once

#include <Random123/philox.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "lynx/session.hpp"

namespace lynx {

/// The Gumbel noise of one position: g = -log(-log(u)), u = (x + 0.5) / 2^32, where x is lane `token % 4` of
/// Philox4x32-10 (Salmon et al., SC'11) at counter (token / 4, position, 0) under the key `seed`.
class Noise {
   public:
    Noise(std::uint64_t seed, std::uint64_t position) noexcept
        : key_{{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)}},
          counter_{{0, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32U), 0}} {
        lanes_ = r123::Philox4x32{}(counter_, key_);
    }

    /// Neighbours share a call of Philox: cheapest in the order of the tokens.
    [[nodiscard]] std::uint32_t bits(Token token) noexcept {
        const auto t = static_cast<std::uint32_t>(token);
        if (t / 4 != counter_[0]) {
            counter_[0] = t / 4;
            lanes_ = r123::Philox4x32{}(counter_, key_);
        }
        return lanes_[t % 4];
    }

    [[nodiscard]] static double gumbel(std::uint32_t bits) noexcept {
        return -std::log(-std::log((bits + 0.5) * 0x1p-32));
    }

    /// No less than gumbel(bits), without a logarithm: -log(u) >= 1 - u, whose leading zeros tell its size.
    [[nodiscard]] static double bound(std::uint32_t bits) noexcept { return 0.6931472 * (1 + std::countl_zero(~bits)); }
    /// No less than any.
    static constexpr double kLargest = 22.9;

   private:
    r123::Philox4x32::key_type key_;
    r123::Philox4x32::ctr_type counter_;
    r123::Philox4x32::ctr_type lanes_;
};

}  // namespace lynx
