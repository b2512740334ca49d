// Encoding a slab: convert, rotate, quantize, split into planes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/bit_planes.hpp"
#include "codec/quantization.hpp"
#include "jobs.hpp"
#include "rotation_phases.hpp"
#include "shape.hpp"

namespace lynx::cuda {

/// The range of all lanes of a vector, in each of them.
template <class Warp, class Shape>
LYNX_DEVICE void widen_ranges(Warp& warp, const Shape& shape,
                              typename Warp::template PerLane<Values<std::int32_t, 2>>& ranges) {
    for (unsigned mask = 1; mask < shape.lanes(); mask *= 2) {
        const auto other = warp.exchange(ranges, mask);
        warp.each([&](unsigned lane) {
            ranges[lane].v[0] = std::min(ranges[lane].v[0], other[lane].v[0]);
            ranges[lane].v[1] = std::max(ranges[lane].v[1], other[lane].v[1]);
        });
    }
}

/// One byte of each plane, and of the sinks where the vector is one. `offset` is the byte's in a plane.
LYNX_DEVICE void store_planes(const Planes<std::byte>& coded, const Place& at, std::uint32_t row_bytes,
                              std::size_t offset, std::uint64_t split) {
    for (unsigned p = 0; p < kPlaneCount; ++p)
        coded.planes[p * coded.plane_step + offset] = static_cast<std::byte>(split >> (8 * (kPlaneCount - 1 - p)));
    if (at.token >= coded.sink_tokens) return;
    const std::size_t sink = std::size_t{at.head} * coded.sink_tokens + at.token;
    const std::size_t chunk = offset - at.vector * row_bytes;
    std::byte* to = coded.sinks + sink * (kPlaneCount - coded.anchor_bits) * row_bytes + chunk;
    for (unsigned p = coded.anchor_bits; p < kPlaneCount; ++p, to += row_bytes)
        *to = static_cast<std::byte>(split >> (8 * (kPlaneCount - 1 - p)));
}

/// Encodes the slab of `head` that begins with `first_token`.
template <DType kType, class Warp, class Shape>
LYNX_DEVICE void encode_slab(Warp& warp, const Shape& shape, const EncodeJob& job, std::uint32_t head,
                             std::uint32_t first_token) {
    constexpr unsigned kRows = Shape::kRows;
    const Planes<std::byte>& coded = job.coded;
    const std::uint32_t row_bytes = chunks_of(shape);

    typename Warp::template PerLane<Values<float, kRows * kChunk>> y;
    warp.each([&](unsigned lane) {
        const Place at = place_in_head(shape, lane, head, coded.tokens, first_token);
        for (unsigned row = 0; row < kRows; ++row) {
            const std::uint32_t chunk = chunk_at(shape, lane, row);
            Chunk<kType> loaded{};
            if (at.there && chunk < row_bytes)
                loaded =
                    load_chunk<kType>(vector_in(job.src, at) + std::size_t{chunk} * sizeof loaded, job.src.alignment);
            for (unsigned i = 0; i < kChunk; ++i) y[lane].v[row * kChunk + i] = widen<kType>(loaded.v[i]);
        }
    });
    rotate(warp, shape, y);

    typename Warp::template PerLane<Values<std::int32_t, 2>> ranges;
    warp.each([&](unsigned lane) {
        codec::Range range;
        for (unsigned row = 0; row < kRows; ++row)
            if (chunk_at(shape, lane, row) < row_bytes)
                for (unsigned i = 0; i < kChunk; ++i) range.include(y[lane].v[row * kChunk + i]);
        ranges[lane] = {{range.low, range.high}};
    });
    widen_ranges(warp, shape, ranges);

    warp.each([&](unsigned lane) {
        const Place at = place_in_head(shape, lane, head, coded.tokens, first_token);
        if (!at.there) return;
        const codec::Range range{ranges[lane].v[0], ranges[lane].v[1]};
        const codec::ScaleZero sz = range.finite() ? codec::scale_zero_of(range) : codec::ScaleZero{};
        if (lane % shape.lanes() == 0) {
            store_aligned(coded.scales + 2 * at.vector, sz.scale);
            store_aligned(coded.zeros + 2 * at.vector, sz.zero);
            if (!range.finite() && job.nonfinite_vectors != nullptr) Warp::add(job.nonfinite_vectors, 1);
        }
        const float zero = codec::f16_to_f32(sz.zero);
        const float inverse_scale = 1.0f / codec::f16_to_f32(sz.scale);
        for (unsigned row = 0; row < kRows; ++row) {
            const std::uint32_t chunk = chunk_at(shape, lane, row);
            if (chunk >= row_bytes) continue;
            std::uint64_t codes = 0;
            for (unsigned i = 0; i < kChunk; ++i)
                codes |= std::uint64_t{codec::code_of(y[lane].v[row * kChunk + i], zero, inverse_scale)} << (8 * i);
            if (sz.scale == 0) codes = 0;
            store_planes(coded, at, row_bytes, at.vector * row_bytes + chunk, codec::transpose_8x8_bits(codes));
        }
    });
}

}  // namespace lynx::cuda
