// Raw coding: a slab's values from one place to another, converted if the types differ.
#pragma once

#include "jobs.hpp"
#include "shape.hpp"

namespace lynx::cuda {

template <DType kFrom, DType kTo, class Warp, class Shape>
LYNX_DEVICE void copy_slab(Warp& warp, const Shape& shape, const RawJob& job, std::uint32_t head,
                           std::uint32_t first_token) {
    warp.each([&](unsigned lane) {
        const Place at = place_in_head(shape, lane, head, job.tokens, first_token);
        if (!at.there) return;
        for (unsigned row = 0; row < Shape::kRows; ++row) {
            const std::uint32_t chunk = chunk_at(shape, lane, row);
            if (chunk >= chunks_of(shape)) continue;
            const Chunk<kFrom> in =
                load_chunk<kFrom>(vector_in(job.src, at) + std::size_t{chunk} * sizeof in, job.src.alignment);
            Chunk<kTo> out;
            for (unsigned i = 0; i < kChunk; ++i) out.v[i] = converted<kFrom, kTo>(in.v[i]);
            store_chunk<kTo>(vector_in(job.dst, at) + std::size_t{chunk} * sizeof out, out, job.dst.alignment);
        }
    });
}

}  // namespace lynx::cuda
