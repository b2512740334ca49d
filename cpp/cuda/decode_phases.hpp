// Decoding a slab: merge planes, rotate back in integers, scale, convert.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/bit_planes.hpp"
#include "jobs.hpp"
#include "rotation_phases.hpp"
#include "shape.hpp"

namespace lynx::cuda {

/// Eight codes, or their first `count` bits, a byte each, from their bytes of the planes.
LYNX_DEVICE std::uint64_t load_codes(const Planes<const std::byte>& coded, const Place& at, std::uint32_t row_bytes,
                                     std::uint32_t chunk, unsigned count, bool sink) {
    const std::byte* plane = coded.planes + at.vector * row_bytes + chunk;
    std::uint64_t planes = 0;
    const unsigned from_planes = sink ? coded.anchor_bits : count;
    for (unsigned p = 0; p < kPlaneCount; ++p)
        if (p < from_planes) planes |= static_cast<std::uint64_t>(plane[p * coded.plane_step]) << (8 * (count - 1 - p));
    if (sink) {
        const std::size_t index = std::size_t{at.head} * coded.sink_tokens + at.token;
        const std::byte* from = coded.sinks + index * (kPlaneCount - coded.anchor_bits) * row_bytes + chunk;
        for (unsigned p = coded.anchor_bits; p < kPlaneCount; ++p, from += row_bytes)
            planes |= static_cast<std::uint64_t>(*from) << (8 * (kPlaneCount - 1 - p));
    }
    return codec::transpose_8x8_bits(planes);
}

/// What the lanes' vectors stand for by their first `plane_count` planes. `places` says which vectors these are.
///
/// Up to 128 coordinates H c fits 16 bits, so one 32-bit word carries two of them, i in its low half and i + 4 in its
/// high half, as the number low + 65536 * high: sums and differences of such numbers are those of both halves. The
/// butterfly between i and i + 4 comes last but for those between rows; in integers their order is free.
template <class Warp, class Shape>
LYNX_DEVICE auto reconstruct_slab(Warp& warp, const Shape& shape, const Planes<const std::byte>& coded,
                                  unsigned plane_count, const typename Warp::template PerLane<Place>& places) {
    constexpr unsigned kRows = Shape::kRows;
    constexpr unsigned kPairs = kChunk / 2;
    const std::uint32_t row_bytes = chunks_of(shape);

    typename Warp::template PerLane<Values<std::uint32_t, kRows * kPairs>> pairs;
    warp.each([&](unsigned lane) {
        const Place& at = places[lane];
        const bool sink = at.token < coded.sink_tokens;
        for (unsigned row = 0; row < kRows; ++row) {
            const std::uint32_t chunk = chunk_at(shape, lane, row);
            std::uint64_t codes = 0;
            if (at.there && chunk < row_bytes)
                codes = load_codes(coded, at, row_bytes, chunk, sink ? kPlaneCount : plane_count, sink);
            const auto low = static_cast<std::uint32_t>(codes);
            const auto high = static_cast<std::uint32_t>(codes >> 32);
            for (unsigned i = 0; i < kPairs; ++i)
                pairs[lane].v[row * kPairs + i] = ((low >> (8 * i)) & 0xffu) | (((high >> (8 * i)) & 0xffu) << 16);
        }
        butterfly_inside<1>(pairs[lane]);
        butterfly_inside<2>(pairs[lane]);
    });
    butterflies_between_lanes(warp, shape, pairs);

    typename Warp::template PerLane<Values<float, kRows * kChunk>> x;
    warp.each([&](unsigned lane) {
        const Place& at = places[lane];
        if (!at.there) return;
        Values<std::int32_t, kRows * kChunk> h;
        for (unsigned row = 0; row < kRows; ++row) {
            for (unsigned i = 0; i < kPairs; ++i) {
                const std::uint32_t pair = pairs[lane].v[row * kPairs + i];
                const std::int32_t low = static_cast<std::int16_t>(pair & 0xffffu);
                const std::int32_t high = static_cast<std::int32_t>(pair - static_cast<std::uint32_t>(low)) >> 16;
                h.v[row * kChunk + i] = low + high;
                h.v[row * kChunk + i + kPairs] = low - high;
            }
        }
        butterflies_between_rows(shape, h);
        const bool sink = at.token < coded.sink_tokens;
        const codec::Reconstruction r =
            codec::reconstruction(codec::f16_to_f32(load_aligned<std::uint16_t>(coded.scales + 2 * at.vector)),
                                  codec::f16_to_f32(load_aligned<std::uint16_t>(coded.zeros + 2 * at.vector)),
                                  sink ? 0 : kPlaneCount - plane_count, shape.log2_block());
        for (unsigned i = 0; i < kRows * kChunk; ++i) x[lane].v[i] = r.factor * static_cast<float>(h.v[i]);
        for (unsigned row = 0; row < kRows; ++row) {
            const std::uint32_t first = chunk_at(shape, lane, row) * kChunk;
            if (first % (1u << shape.log2_block()) == 0) x[lane].v[row * kChunk] += r.bias;
        }
    });
    return x;
}

/// Decodes the slab of `head` that begins with `first_token`.
template <DType kType, class Warp, class Shape>
LYNX_DEVICE void decode_slab(Warp& warp, const Shape& shape, const DecodeJob& job, std::uint32_t head,
                             std::uint32_t first_token) {
    typename Warp::template PerLane<Place> places;
    warp.each([&](unsigned lane) { places[lane] = place_in_head(shape, lane, head, job.coded.tokens, first_token); });
    const auto x = reconstruct_slab(warp, shape, job.coded, job.plane_count, places);
    warp.each([&](unsigned lane) {
        const Place& at = places[lane];
        if (!at.there) return;
        for (unsigned row = 0; row < Shape::kRows; ++row) {
            const std::uint32_t chunk = chunk_at(shape, lane, row);
            if (chunk >= chunks_of(shape)) continue;
            Chunk<kType> out;
            for (unsigned i = 0; i < kChunk; ++i) out.v[i] = narrow<kType>(x[lane].v[row * kChunk + i]);
            store_chunk<kType>(vector_in(job.dst, at) + std::size_t{chunk} * sizeof out, out, job.dst.alignment);
        }
    });
}

}  // namespace lynx::cuda
