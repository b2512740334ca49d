// How vectors lie in a warp. A lane holds one chunk, eight adjacent coordinates. A vector takes as many lanes as it has
// chunks, rounded up to a power of two, so that a block of the rotation never leaves its lanes' group and several
// short vectors share a warp. A vector of more than 256 coordinates takes all lanes, in several *rows*: coordinate c is
// in row c / 256, lane c / 8 % 32.
#pragma once

#include <cstdint>

#include "chunk.hpp"
#include "codec/rotation.hpp"
#include "device.hpp"

namespace lynx::cuda {

inline constexpr std::uint32_t kRowCoordinates = kLanes * kChunk;

[[nodiscard]] constexpr unsigned lanes_of(std::uint32_t head_dim) noexcept {
    unsigned lanes = 1;
    while (lanes < kLanes && lanes * kChunk < head_dim) lanes *= 2;
    return lanes;
}

/// A head_dim that the compiler knows, up to 256.
template <std::uint32_t kHeadDim>
struct FixedShape {
    static_assert(kHeadDim % kChunk == 0 && kHeadDim <= kRowCoordinates);
    static constexpr unsigned kRows = 1;
    [[nodiscard]] static constexpr std::uint32_t head_dim() noexcept { return kHeadDim; }
    [[nodiscard]] static constexpr unsigned lanes() noexcept { return lanes_of(kHeadDim); }
    [[nodiscard]] static constexpr unsigned log2_block() noexcept { return codec::log2_block(kHeadDim); }
};

/// Any head_dim of up to kRowCount rows.
template <unsigned kRowCount>
class AnyShape {
   public:
    static constexpr unsigned kRows = kRowCount;
    explicit constexpr AnyShape(std::uint32_t head_dim) noexcept
        : head_dim_(head_dim), lanes_(lanes_of(head_dim)), log2_block_(codec::log2_block(head_dim)) {}
    [[nodiscard]] constexpr std::uint32_t head_dim() const noexcept { return head_dim_; }
    [[nodiscard]] constexpr unsigned lanes() const noexcept { return lanes_; }
    [[nodiscard]] constexpr unsigned log2_block() const noexcept { return log2_block_; }

   private:
    std::uint32_t head_dim_;
    unsigned lanes_;
    unsigned log2_block_;
};

template <class Shape>
[[nodiscard]] constexpr std::uint32_t chunks_of(const Shape& shape) noexcept {
    return shape.head_dim() / kChunk;
}

/// A *slab* is the vectors that a warp works on at once.
template <class Shape>
[[nodiscard]] constexpr std::uint32_t slab_vectors(const Shape& shape) noexcept {
    return kLanes / shape.lanes();
}

/// Which chunk of its vector a lane holds in a row; there may be none.
template <class Shape>
[[nodiscard]] constexpr std::uint32_t chunk_at(const Shape& shape, unsigned lane, unsigned row) noexcept {
    return lane % shape.lanes() + row * kLanes;
}

/// Which vector a lane works on.
struct Place {
    bool there;  ///< is there such a vector? What follows is of vector 0 if not
    std::uint32_t head;
    std::uint32_t token;
    std::size_t vector;  ///< its index in the coded tensor
};

/// Of the slab that begins with `first_token` of one head.
template <class Shape>
[[nodiscard]] constexpr Place place_in_head(const Shape& shape, unsigned lane, std::uint32_t head, std::uint32_t tokens,
                                            std::uint32_t first_token) noexcept {
    const std::uint32_t token = first_token + lane / shape.lanes();
    if (token >= tokens) return {false, 0, 0, 0};
    return {true, head, token, std::size_t{head} * tokens + token};
}

/// Of the slab that begins with the vector `first`; `end` is the first one that is not there.
template <class Shape>
[[nodiscard]] constexpr Place place_in_order(const Shape& shape, unsigned lane, std::uint32_t tokens,
                                             std::uint32_t first, std::uint32_t end) noexcept {
    const std::uint32_t vector = first + lane / shape.lanes();
    if (vector >= end) return {false, 0, 0, 0};
    const std::uint32_t head = vector / tokens;
    return {true, head, vector - head * tokens, vector};
}

/// Where a lane's vector lies in a tensor.
template <class Tensor>
[[nodiscard]] constexpr auto vector_in(const Tensor& tensor, const Place& at) noexcept {
    return tensor.data + std::int64_t{at.head} * tensor.head_step + std::int64_t{at.token} * tensor.token_step;
}

}  // namespace lynx::cuda
