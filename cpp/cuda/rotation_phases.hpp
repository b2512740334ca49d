// The Hadamard rotation of a warp's vectors: butterflies inside a chunk, then between lanes, then between rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device.hpp"
#include "shape.hpp"

namespace lynx::cuda {

/// a, b = a + b, a - b between the elements i and i + kStep of each chunk.
template <unsigned kStep, class T, unsigned kCount>
LYNX_DEVICE void butterfly_inside(Values<T, kCount>& x) {
    for (unsigned i = 0; i < kCount; ++i) {
        if ((i & kStep) != 0) continue;
        const T a = x.v[i];
        const T b = x.v[i + kStep];
        x.v[i] = a + b;
        x.v[i + kStep] = a - b;
    }
}

/// The same between rows; elements of one row are kCount / kRows apart.
template <unsigned kRowStep, unsigned kRows, class T, unsigned kCount>
LYNX_DEVICE void butterfly_rows(Values<T, kCount>& x) {
    if constexpr (kRows > kRowStep) butterfly_inside<kRowStep*(kCount / kRows)>(x);
}

/// The same between a lane and the one whose number differs by `mask`.
template <class Warp, class Vector>
LYNX_DEVICE void butterfly_lanes(Warp& warp, Vector& x, unsigned mask) {
    const Vector other = warp.exchange(x, mask);
    warp.each([&](unsigned lane) {
        const bool upper = (lane & mask) != 0;
        auto& mine = x[lane].v;
        for (unsigned i = 0; i < sizeof(mine) / sizeof(mine[0]); ++i)
            mine[i] = upper ? other[lane].v[i] - mine[i] : mine[i] + other[lane].v[i];
    });
}

/// All butterflies between lanes, the closest first.
template <class Warp, class Shape, class Vector>
LYNX_DEVICE void butterflies_between_lanes(Warp& warp, const Shape& shape, Vector& x) {
    for (unsigned mask = 1; mask < kLanes && mask * kChunk < (1u << shape.log2_block()); mask *= 2)
        butterfly_lanes(warp, x, mask);
}

template <class Shape, class T, unsigned kCount>
LYNX_DEVICE void butterflies_between_rows(const Shape& shape, Values<T, kCount>& x) {
    if (shape.log2_block() > 8) butterfly_rows<1, Shape::kRows>(x);
    if (shape.log2_block() > 9) butterfly_rows<2, Shape::kRows>(x);
}

/// y = H x, the stages in the order of the format.
template <class Warp, class Shape, class Vector>
LYNX_DEVICE void rotate(Warp& warp, const Shape& shape, Vector& x) {
    warp.each([&](unsigned lane) {
        butterfly_inside<1>(x[lane]);
        butterfly_inside<2>(x[lane]);
        butterfly_inside<4>(x[lane]);
    });
    butterflies_between_lanes(warp, shape, x);
    warp.each([&](unsigned lane) {
        butterflies_between_rows(shape, x[lane]);
        const float factor = codec::forward_factor(shape.log2_block());
        for (float& y : x[lane].v) y *= factor;
    });
}

}  // namespace lynx::cuda
