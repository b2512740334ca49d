// Encoding the exact tier, in kernels that follow each other: how long each group is; where it ends, in three steps;
// and its bits. Groups are measured first and coded afterwards, so that each is written where it belongs: nothing is
// moved and no memory of the tensor's size is needed.
#pragma once

#include "exact_terms.hpp"

namespace lynx::cuda {

/// The terms of a lane's chunk of one row.
template <DType kType, unsigned kCount>
LYNX_DEVICE Values<Term, kChunk> terms_of(const ExactEncodeJob& job, const Place& at, std::uint32_t chunk,
                                          int scale_term, const Values<float, kCount>& reconstructed, unsigned row) {
    const auto source =
        load_chunk<kType>(vector_in(job.src, at) + std::size_t{chunk} * sizeof(Chunk<kType>), job.src.alignment);
    Values<Term, kChunk> terms;
    for (unsigned i = 0; i < kChunk; ++i) {
        const std::uint16_t reference = narrow<kType>(reconstructed.v[row * kChunk + i]);
        terms.v[i] = {codec::fold(source.v[i], reference), codec::rice_parameter<kType>(scale_term, reference)};
    }
    return terms;
}

/// Writes how many units of 8 bytes the group takes to its place in the index.
template <DType kType, class Warp, class Shape>
LYNX_DEVICE void measure_group(Warp& warp, const Shape& shape, const ExactEncodeJob& job, std::uint32_t index) {
    const Group group = group_at(shape, job.groups, index);
    typename Warp::template PerLane<std::uint32_t> bits;
    warp.each([&](unsigned lane) { bits[lane] = 0; });
    for_each_slab(warp, shape, group, job.coded.tokens, [&](const auto& places) {
        const auto x = reconstruct_slab(warp, shape, job.coded, kPlaneCount, places);
        warp.each([&](unsigned lane) {
            const Place& at = places[lane];
            if (!at.there) return;
            const int term = scale_term_of<kType>(job.coded, at);
            for (unsigned row = 0; row < Shape::kRows; ++row) {
                const std::uint32_t chunk = chunk_at(shape, lane, row);
                if (chunk >= chunks_of(shape)) continue;
                const Values<Term, kChunk> terms = terms_of<kType>(job, at, chunk, term, x[lane], row);
                for (unsigned i = 0; i < kChunk; ++i) bits[lane] += terms.v[i].bits();
            }
        });
        return true;
    });
    scan_lanes(warp, bits);
    const std::uint32_t units = std::min((warp.last(bits) + 63) / 64, group.raw_units);
    warp.each([&](unsigned lane) {
        if (lane == 0) codec::store(job.index + index * kIndexBytes, units);
    });
}

/// What one lane adds up of a tile's groups, in each lane.
template <class Warp>
LYNX_DEVICE void sum_tile(Warp& warp, const ExactEncodeJob& job, std::uint32_t tile) {
    typename Warp::template PerLane<std::uint32_t> sums;
    warp.each([&](unsigned lane) {
        sums[lane] = 0;
        const std::uint32_t end = std::min((tile + 1) * kTileGroups, job.groups.count);
        for (std::uint32_t g = tile * kTileGroups + lane; g < end; g += kLanes)
            sums[lane] += codec::load<std::uint32_t>(job.index + g * kIndexBytes);
    });
    scan_lanes(warp, sums);
    const std::uint32_t sum = warp.last(sums);
    warp.each([&](unsigned lane) {
        if (lane == 0) job.tile_ends[tile] = sum;
    });
}

/// From the tiles' sums to their ends. One warp's work.
template <class Warp>
LYNX_DEVICE void scan_tiles(Warp& warp, const ExactEncodeJob& job) {
    const std::uint32_t tiles = tiles_of(job.groups);
    std::uint32_t before = 0;
    for (std::uint32_t first = 0; first < tiles; first += kLanes) {
        typename Warp::template PerLane<std::uint32_t> ends;
        warp.each([&](unsigned lane) { ends[lane] = first + lane < tiles ? job.tile_ends[first + lane] : 0; });
        scan_lanes(warp, ends);
        warp.each([&](unsigned lane) {
            if (first + lane < tiles) job.tile_ends[first + lane] = before + ends[lane];
        });
        before += warp.last(ends);
    }
}

/// From the lengths of a tile's groups to their ends.
template <class Warp>
LYNX_DEVICE void scan_tile(Warp& warp, const ExactEncodeJob& job, std::uint32_t tile) {
    std::uint32_t before = tile == 0 ? 0 : job.tile_ends[tile - 1];
    const std::uint32_t end = std::min((tile + 1) * kTileGroups, job.groups.count);
    for (std::uint32_t first = tile * kTileGroups; first < end; first += kLanes) {
        typename Warp::template PerLane<std::uint32_t> ends;
        warp.each([&](unsigned lane) {
            const std::uint32_t g = first + lane;
            ends[lane] = g < end ? codec::load<std::uint32_t>(job.index + g * kIndexBytes) : 0;
        });
        scan_lanes(warp, ends);
        warp.each([&](unsigned lane) {
            if (first + lane < end) codec::store(job.index + (first + lane) * kIndexBytes, before + ends[lane]);
        });
        before += warp.last(ends);
    }
}

/// How many bits a lane, or a word, has in each line of the format, a byte each: a line has 64 at most.
template <DType kType>
class LineCounts {
   public:
    static constexpr unsigned kBitLines = static_cast<unsigned>(codec::kFloat16Format<kType>.mantissa_bits) + 1;
    static constexpr unsigned kEscapeLine = kBitLines + codec::kUnaryPlanes;
    using Packed = Values<std::uint32_t, kEscapeLine / 4 + 1>;

    [[nodiscard]] static LYNX_DEVICE unsigned of(const Packed& packed, unsigned line) {
        return (packed.v[line / 4] >> (8 * (line % 4))) & 0xffu;
    }
    static LYNX_DEVICE void increase(Packed& packed, unsigned line, unsigned count) {
        packed.v[line / 4] += count << (8 * (line % 4));
    }
    static LYNX_DEVICE void add(Packed& to, const Packed& other) {
        for (unsigned i = 0; i < kEscapeLine / 4 + 1; ++i) to.v[i] += other.v[i];
    }
    [[nodiscard]] static LYNX_DEVICE unsigned bits(const Packed& packed) {
        unsigned sum = of(packed, kEscapeLine) * codec::kEscapeBits;
        LYNX_UNROLL
        for (unsigned line = 0; line < kEscapeLine; ++line) sum += of(packed, line);
        return sum;
    }
};

/// The bits that a lane's terms have in one line, the first lowest.
struct LineBits {
    unsigned bits = 0;
    unsigned count = 0;

    constexpr void put(bool bit) noexcept { bits |= static_cast<unsigned>(bit) << count++; }
};

template <DType kType>
[[nodiscard]] LYNX_DEVICE LineBits bits_in_line(const Values<Term, kChunk>& terms, unsigned line) {
    constexpr unsigned kBitLines = LineCounts<kType>::kBitLines;
    LineBits out;
    for (const Term& term : terms.v) {
        if (!term.coded()) continue;
        if (line < kBitLines) {
            if (term.k > line) out.put(((term.folded >> line) & 1u) != 0);
        } else if (term.quotient() >= line - kBitLines) {
            out.put(term.quotient() > line - kBitLines);
        }
    }
    return out;
}

/// Up to 16 bits into the warp's scratch, which was zero there.
template <class Warp>
LYNX_DEVICE void put_bits(Warp& warp, std::uint32_t position, unsigned bits, unsigned count) {
    const std::uint32_t word = position / 32;
    const unsigned shift = position % 32;
    // Only a source that changes while it is coded leads past the end: what comes of it is of no use to anyone.
    if (count == 0 || word + 1 >= kScratchWords) return;
    warp.or_scratch(word, bits << shift);
    if (shift + count > 32) warp.or_scratch(word + 1, bits >> (32 - shift));
}

/// Puts all lanes' words of one row behind `position`. `present` says which lanes have a chunk there. Returns how many
/// bits these are.
template <DType kType, class Warp, class Shape>
LYNX_DEVICE std::uint32_t put_row(Warp& warp, const Shape& shape, std::uint32_t position,
                                  const typename Warp::template PerLane<bool>& present,
                                  const typename Warp::template PerLane<Values<Term, kChunk>>& terms) {
    using Counts = LineCounts<kType>;
    using Packed = typename Counts::Packed;
    const unsigned word_lanes = std::min<unsigned>(shape.lanes(), codec::kWordValues / kChunk);

    typename Warp::template PerLane<Packed> counts;
    typename Warp::template PerLane<unsigned> last_of_word;
    warp.each([&](unsigned lane) {
        counts[lane] = Packed{};
        last_of_word[lane] = lane | (word_lanes - 1);
        if (!present[lane]) return;
        LYNX_UNROLL
        for (unsigned line = 0; line < Counts::kEscapeLine; ++line)
            Counts::increase(counts[lane], line, bits_in_line<kType>(terms[lane], line).count);
        for (const Term& term : terms[lane].v) Counts::increase(counts[lane], Counts::kEscapeLine, term.escaped());
    });
    auto through = counts;
    scan_lanes(warp, through, word_lanes, [](Packed& to, const Packed& value) { Counts::add(to, value); });
    const auto totals = warp.from_lane(through, last_of_word);

    typename Warp::template PerLane<std::uint32_t> ends;
    warp.each([&](unsigned lane) { ends[lane] = lane % word_lanes == 0 ? Counts::bits(totals[lane]) : 0; });
    scan_lanes(warp, ends);
    warp.each([&](unsigned lane) {
        if (!present[lane]) return;
        std::uint32_t line_start = position + ends[lane] - Counts::bits(totals[lane]);
        LYNX_UNROLL
        for (unsigned line = 0; line < Counts::kEscapeLine; ++line) {
            const LineBits mine = bits_in_line<kType>(terms[lane], line);
            put_bits(warp, line_start + Counts::of(through[lane], line) - mine.count, mine.bits, mine.count);
            line_start += Counts::of(totals[lane], line);
        }
        std::uint32_t rank =
            Counts::of(through[lane], Counts::kEscapeLine) - Counts::of(counts[lane], Counts::kEscapeLine);
        for (const Term& term : terms[lane].v)
            if (term.escaped())
                put_bits(warp, line_start + codec::kEscapeBits * rank++, term.folded, codec::kEscapeBits);
    });
    return warp.last(ends);
}

/// The group's values as they are.
template <DType kType, class Warp, class Shape>
LYNX_DEVICE void write_raw_group(Warp& warp, const Shape& shape, const ExactEncodeJob& job, const Group& group,
                                 std::byte* to, unsigned alignment) {
    for_each_slab(warp, shape, group, job.coded.tokens, [&](const auto& places) {
        warp.each([&](unsigned lane) {
            const Place& at = places[lane];
            if (!at.there) return;
            std::byte* vector = to + (at.vector - group.first) * shape.head_dim() * 2;
            for (unsigned row = 0; row < Shape::kRows; ++row) {
                const std::uint32_t chunk = chunk_at(shape, lane, row);
                if (chunk >= chunks_of(shape)) continue;
                const std::size_t offset = std::size_t{chunk} * sizeof(Chunk<kType>);
                store_chunk<kType>(vector + offset,
                                   load_chunk<kType>(vector_in(job.src, at) + offset, job.src.alignment), alignment);
            }
        });
        return true;
    });
}

/// Writes the group's bits to where the index says. Needs kScratchWords of scratch.
template <DType kType, class Warp, class Shape>
LYNX_DEVICE void write_group(Warp& warp, const Shape& shape, const ExactEncodeJob& job, std::uint32_t index) {
    const Group group = group_at(shape, job.groups, index);
    const std::byte* ends = job.index + index * kIndexBytes;
    const std::uint32_t begin = index == 0 ? 0 : codec::load<std::uint32_t>(ends - kIndexBytes);
    const std::uint32_t units = codec::load<std::uint32_t>(ends) - begin;
    std::byte* to = job.payload + std::size_t{begin} * codec::kGroupAlignment;
    if (units >= group.raw_units) {
        const unsigned alignment = begin % 2 == 0 ? job.payload_alignment : std::min(job.payload_alignment, 8u);
        return write_raw_group<kType>(warp, shape, job, group, to, alignment);
    }

    warp.each([&](unsigned lane) {
        for (std::uint32_t i = lane; i < 2 * units; i += kLanes) warp.scratch()[i] = 0;
    });
    warp.sync();
    std::uint32_t position = 0;
    for_each_slab(warp, shape, group, job.coded.tokens, [&](const auto& places) {
        const auto x = reconstruct_slab(warp, shape, job.coded, kPlaneCount, places);
        for (unsigned row = 0; row < Shape::kRows; ++row) {
            typename Warp::template PerLane<bool> present;
            typename Warp::template PerLane<Values<Term, kChunk>> terms;
            warp.each([&](unsigned lane) {
                const Place& at = places[lane];
                const std::uint32_t chunk = chunk_at(shape, lane, row);
                present[lane] = at.there && chunk < chunks_of(shape);
                if (!present[lane]) return;
                terms[lane] = terms_of<kType>(job, at, chunk, scale_term_of<kType>(job.coded, at), x[lane], row);
            });
            position += put_row<kType>(warp, shape, position, present, terms);
        }
        return true;
    });
    warp.sync();
    warp.each([&](unsigned lane) {
        for (std::uint32_t i = lane; i < units; i += kLanes) {
            const std::uint64_t unit = warp.scratch()[2 * i] | (std::uint64_t{warp.scratch()[2 * i + 1]} << 32);
            if (job.payload_alignment >= sizeof unit)
                store_aligned(to + i * sizeof unit, unit);
            else
                codec::store(to + i * sizeof unit, unit);
        }
    });
    warp.sync();
}

}  // namespace lynx::cuda
