// Tensors for the codec's tests: any strides, filled and read element by element.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/oracle.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::testing {

enum class Strides { kContiguous, kTokensFirst, kDimOuter, kPadded, kNegative };
inline constexpr Strides kAllStrides[] = {Strides::kContiguous, Strides::kTokensFirst, Strides::kDimOuter,
                                          Strides::kPadded, Strides::kNegative};
inline constexpr DType kAllDTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

class Tensor {
   public:
    Tensor(DType dtype, std::int64_t heads, std::int64_t tokens, std::int64_t head_dim,
           Strides strides = Strides::kContiguous)
        : dtype_(dtype), shape_{heads, tokens, head_dim} {
        switch (strides) {
            case Strides::kContiguous: strides_ = {tokens * head_dim, head_dim, 1}; break;
            case Strides::kTokensFirst: strides_ = {head_dim, heads * head_dim, 1}; break;
            case Strides::kDimOuter: strides_ = {tokens, 1, heads * tokens}; break;
            case Strides::kPadded: strides_ = {(tokens + 2) * (2 * head_dim + 3) + 1, 2 * head_dim + 3, 2}; break;
            case Strides::kNegative: strides_ = {-tokens * head_dim, -head_dim, -1}; break;
        }
        std::int64_t least = 0;
        std::int64_t most = 0;
        for (std::size_t axis = 0; axis < 3; ++axis) {
            const std::int64_t reach = std::max<std::int64_t>(shape_[axis] - 1, 0) * strides_[axis];
            (reach < 0 ? least : most) += reach;
        }
        first_ = static_cast<std::size_t>(-least) * size_of(dtype);
        // Zero-filled at first; what no element covers has to stay so.
        bytes_.assign(static_cast<std::size_t>(most - least + 1) * size_of(dtype), std::byte{0});
    }

    [[nodiscard]] TensorView view() const { return {bytes_.data() + first_, dtype_, shape_, strides_}; }
    [[nodiscard]] MutableTensorView mutable_view() { return {bytes_.data() + first_, dtype_, shape_, strides_}; }

    [[nodiscard]] std::uint32_t bits(std::int64_t h, std::int64_t t, std::int64_t d) const {
        std::uint32_t bits = 0;
        std::memcpy(&bits, bytes_.data() + offset(h, t, d), size_of(dtype_));
        return bits;
    }
    void set_bits(std::int64_t h, std::int64_t t, std::int64_t d, std::uint32_t bits) {
        std::memcpy(bytes_.data() + offset(h, t, d), &bits, size_of(dtype_));
    }
    [[nodiscard]] double value(std::int64_t h, std::int64_t t, std::int64_t d) const {
        return oracle::value_of(dtype_, bits(h, t, d));
    }
    void set(std::int64_t h, std::int64_t t, std::int64_t d, double value) {
        set_bits(h, t, d, oracle::bits_of(dtype_, oracle::round_to(dtype_, static_cast<float>(value))));
    }

    void fill(const std::function<double(std::int64_t, std::int64_t, std::int64_t)>& value) {
        for (std::int64_t h = 0; h < shape_[0]; ++h)
            for (std::int64_t t = 0; t < shape_[1]; ++t)
                for (std::int64_t d = 0; d < shape_[2]; ++d) set(h, t, d, value(h, t, d));
    }
    /// Normal values with an outlier channel, as keys have.
    void fill_normal(unsigned seed, double spread = 1.0) {
        std::mt19937 random(seed);
        std::normal_distribution<double> normal;
        fill([&](auto, auto, std::int64_t d) { return spread * (normal(random) + (d == 3 ? 12.0 : 0.0)); });
    }

    [[nodiscard]] std::vector<float> vector(std::int64_t h, std::int64_t t) const {
        std::vector<float> values;
        for (std::int64_t d = 0; d < shape_[2]; ++d) values.push_back(static_cast<float>(value(h, t, d)));
        return values;
    }

    /// All its memory, with what lies between the elements.
    [[nodiscard]] const std::vector<std::byte>& bytes() const noexcept { return bytes_; }

    /// Bytes that belong to no element and are not zero any more.
    [[nodiscard]] std::size_t stray_bytes() const {
        std::vector<bool> covered(bytes_.size(), false);
        for (std::int64_t h = 0; h < shape_[0]; ++h)
            for (std::int64_t t = 0; t < shape_[1]; ++t)
                for (std::int64_t d = 0; d < shape_[2]; ++d)
                    for (std::size_t b = 0; b < size_of(dtype_); ++b) covered[offset(h, t, d) + b] = true;
        std::size_t stray = 0;
        for (std::size_t i = 0; i < bytes_.size(); ++i) stray += !covered[i] && bytes_[i] != std::byte{0};
        return stray;
    }

   private:
    [[nodiscard]] std::size_t offset(std::int64_t h, std::int64_t t, std::int64_t d) const {
        const std::int64_t element = h * strides_[0] + t * strides_[1] + d * strides_[2];
        return first_ + static_cast<std::size_t>(element * static_cast<std::int64_t>(size_of(dtype_)));
    }

    DType dtype_;
    std::array<std::int64_t, 3> shape_;
    std::array<std::int64_t, 3> strides_{};
    std::size_t first_ = 0;
    std::vector<std::byte> bytes_;
};

}  // namespace lynx::testing
