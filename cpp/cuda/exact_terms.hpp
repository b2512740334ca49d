// The exact tier's values as a lane holds them, and where its groups lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/exact_tier.hpp"
#include "decode_phases.hpp"
#include "jobs.hpp"
#include "shape.hpp"

namespace lynx::cuda {

inline constexpr std::size_t kIndexBytes = sizeof(std::uint32_t);
/// Of the scratch that the exact tier's kernels need: the largest group as bits.
inline constexpr unsigned kScratchWords = codec::kMaxGroupValues * 2 / sizeof(std::uint32_t);
/// Groups are numbered and summed up in tiles of this many.
inline constexpr std::uint32_t kTileGroups = 1024;

[[nodiscard]] constexpr std::uint32_t tiles_of(const Groups& groups) noexcept {
    return (groups.count + kTileGroups - 1) / kTileGroups;
}

/// The vectors of one group, and its bytes as they are in units of 8.
struct Group {
    std::uint32_t first;
    std::uint32_t end;
    std::uint32_t raw_units;
};

template <class Shape>
[[nodiscard]] constexpr Group group_at(const Shape& shape, const Groups& groups, std::uint32_t index) noexcept {
    const std::uint32_t first = index * groups.group_vectors;
    const std::uint32_t end = first + std::min(groups.group_vectors, groups.vectors - first);
    return {first, end, (end - first) * shape.head_dim() / 4};
}

/// A value's folded difference and its Rice parameter.
struct Term {
    unsigned folded = 0;
    unsigned k = 0;

    [[nodiscard]] constexpr bool coded() const noexcept { return k != codec::kAlwaysEscaped; }
    [[nodiscard]] constexpr unsigned quotient() const noexcept { return folded >> k; }
    [[nodiscard]] constexpr bool escaped() const noexcept { return !coded() || quotient() >= codec::kUnaryPlanes; }
    [[nodiscard]] constexpr unsigned bits() const noexcept {
        if (!coded()) return codec::kEscapeBits;
        return k + (escaped() ? codec::kUnaryPlanes + codec::kEscapeBits : quotient() + 1);
    }
};

/// What its scale adds to the parameters of a lane's vector.
template <DType kType>
[[nodiscard]] LYNX_DEVICE int scale_term_of(const Planes<const std::byte>& coded, const Place& at) {
    return codec::scale_term<kType>(codec::f16_to_f32(load_aligned<std::uint16_t>(coded.scales + 2 * at.vector)));
}

/// Inclusive sums from the lowest lane up, inside groups of `width` lanes.
template <class Warp, class Vector, class Add>
LYNX_DEVICE void scan_lanes(Warp& warp, Vector& x, unsigned width, Add add) {
    for (unsigned distance = 1; distance < width; distance *= 2) {
        const Vector below = warp.from_below(x, distance);
        warp.each([&](unsigned lane) {
            if (lane % width >= distance) add(x[lane], below[lane]);
        });
    }
}

template <class Warp>
LYNX_DEVICE void scan_lanes(Warp& warp, typename Warp::template PerLane<std::uint32_t>& x) {
    scan_lanes(warp, x, kLanes, [](std::uint32_t& to, std::uint32_t value) { to += value; });
}

/// The same group's vectors, slab by slab: calls use(places) for each.
template <class Warp, class Shape, class Use>
LYNX_DEVICE void for_each_slab(Warp& warp, const Shape& shape, const Group& group, std::uint32_t tokens, Use use) {
    for (std::uint32_t first = group.first; first < group.end; first += slab_vectors(shape)) {
        typename Warp::template PerLane<Place> places;
        warp.each([&](unsigned lane) { places[lane] = place_in_order(shape, lane, tokens, first, group.end); });
        if (!use(places)) return;
    }
}

}  // namespace lynx::cuda
