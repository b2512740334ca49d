// Decoding the exact tier. A warp takes a group and decodes its words one behind the other: where a word begins is
// known only once the one before is decoded. Inside a word all lanes work on two values each; a value's place in a
// line is the number of values before it that have a bit there, which a ballot tells.
#pragma once

#include "exact_terms.hpp"

namespace lynx::cuda {

/// A group's bits. What lies behind its last unit reads as zeros.
struct BitSource {
    const std::byte* from;
    std::uint32_t units;
    bool aligned;

    [[nodiscard]] LYNX_DEVICE std::uint64_t unit(std::uint32_t index) const {
        if (index >= units) return 0;
        const std::byte* at = from + std::size_t{index} * sizeof(std::uint64_t);
        return aligned ? load_aligned<std::uint64_t>(at) : codec::load<std::uint64_t>(at);
    }
    /// 64 bits from any position on.
    [[nodiscard]] LYNX_DEVICE std::uint64_t bits(std::uint32_t position) const {
        const unsigned shift = position % 64;
        const std::uint64_t low = unit(position / 64) >> shift;
        return shift == 0 ? low : low | (unit(position / 64 + 1) << (64 - shift));
    }
};

/// A value on its way: what the word's lines have told so far.
struct Pending {
    std::uint16_t reference = 0;
    bool present = false;
    Term term{};  ///< its k; the low bits of its folded difference
    unsigned quotient = 0;

    [[nodiscard]] constexpr bool coded() const noexcept { return present && term.coded(); }
    [[nodiscard]] constexpr bool escaped() const noexcept {
        return present && (!term.coded() || quotient == codec::kUnaryPlanes);
    }
};

/// A slot of the scratch holds one value: first its reference and parameter, then its bits.
[[nodiscard]] constexpr std::uint32_t slot_of(std::uint16_t reference, unsigned k) noexcept {
    return 0x80000000u | (k << 16) | reference;
}
[[nodiscard]] constexpr Pending pending_of(std::uint32_t slot) noexcept {
    return {static_cast<std::uint16_t>(slot), (slot >> 31) != 0, {0, (slot >> 16) & 0x1fu}, 0};
}

/// Which of a word's values have a bit in a line: value `lane` in bit `lane` of low, value 32 + lane in that of high.
struct LineMembers {
    std::uint32_t low;
    std::uint32_t high;
};

template <class Warp, class Pendings, class Member>
LYNX_DEVICE LineMembers members_of(Warp& warp, const Pendings& values, Member member) {
    typename Warp::template PerLane<bool> low;
    typename Warp::template PerLane<bool> high;
    warp.each([&](unsigned lane) {
        low[lane] = member(values[lane].v[0]);
        high[lane] = member(values[lane].v[1]);
    });
    return {warp.ballot(low), warp.ballot(high)};
}

template <class Warp>
[[nodiscard]] LYNX_DEVICE unsigned count_of(const LineMembers& line) {
    return Warp::count(line.low) + Warp::count(line.high);
}

/// How many of a line's members come before the lane's value 0 or 1.
template <class Warp>
[[nodiscard]] LYNX_DEVICE unsigned rank_of(const LineMembers& line, unsigned lane, unsigned which) {
    const std::uint32_t below = (1u << lane) - 1;
    return which == 0 ? Warp::count(line.low & below) : Warp::count(line.low) + Warp::count(line.high & below);
}

/// Decodes one word, whose bits begin at `position`; returns where they end.
template <DType kType, class Warp, class Pendings>
LYNX_DEVICE std::uint32_t decode_word(Warp& warp, const BitSource& source, std::uint32_t position, Pendings& values) {
    constexpr unsigned kBitLines = static_cast<unsigned>(codec::kFloat16Format<kType>.mantissa_bits) + 1;
    for (unsigned j = 0; j < kBitLines; ++j) {
        const auto member = [j](const Pending& value) { return value.coded() && value.term.k > j; };
        const LineMembers line = members_of(warp, values, member);
        if ((line.low | line.high) == 0) break;
        const std::uint64_t bits = source.bits(position);
        warp.each([&](unsigned lane) {
            for (unsigned which = 0; which < 2; ++which)
                if (Pending& value = values[lane].v[which]; member(value))
                    value.term.folded |= static_cast<unsigned>((bits >> rank_of<Warp>(line, lane, which)) & 1u) << j;
        });
        position += count_of<Warp>(line);
    }
    for (unsigned j = 0; j < codec::kUnaryPlanes; ++j) {
        const auto member = [j](const Pending& value) { return value.coded() && value.quotient == j; };
        const LineMembers line = members_of(warp, values, member);
        if ((line.low | line.high) == 0) break;
        const std::uint64_t bits = source.bits(position);
        warp.each([&](unsigned lane) {
            for (unsigned which = 0; which < 2; ++which)
                if (Pending& value = values[lane].v[which]; member(value))
                    value.quotient += static_cast<unsigned>((bits >> rank_of<Warp>(line, lane, which)) & 1u);
        });
        position += count_of<Warp>(line);
    }
    const auto escaped = [](const Pending& value) { return value.escaped(); };
    const LineMembers line = members_of(warp, values, escaped);
    warp.each([&](unsigned lane) {
        for (unsigned which = 0; which < 2; ++which) {
            Pending& value = values[lane].v[which];
            if (!value.escaped())
                value.term.folded |= value.quotient << value.term.k;
            else
                value.term.folded = static_cast<unsigned>(
                    source.bits(position + codec::kEscapeBits * rank_of<Warp>(line, lane, which)) & 0xffffu);
        }
    });
    return position + codec::kEscapeBits * count_of<Warp>(line);
}

/// Decodes the words of one row of a slab, whose references lie in the scratch, into the scratch. Returns where their
/// bits end, or more than the source's bits once they do not fit.
template <DType kType, class Warp, class Shape>
LYNX_DEVICE std::uint32_t decode_row(Warp& warp, const Shape& shape, const BitSource& source, std::uint32_t position) {
    const unsigned word_values = std::min<unsigned>(shape.lanes() * kChunk, codec::kWordValues);
    for (unsigned first = 0; first < kRowCoordinates; first += word_values) {
        typename Warp::template PerLane<Values<Pending, 2>> values;
        warp.each([&](unsigned lane) {
            for (unsigned which = 0; which < 2; ++which) {
                const unsigned i = lane + which * kLanes;
                values[lane].v[which] = pending_of(i < word_values ? warp.scratch()[first + i] : 0);
            }
        });
        position = decode_word<kType>(warp, source, position, values);
        if (position > source.units * 64) return position;
        warp.each([&](unsigned lane) {
            for (unsigned which = 0; which < 2; ++which) {
                const unsigned i = lane + which * kLanes;
                const Pending& value = values[lane].v[which];
                if (i < word_values)
                    warp.scratch()[first + i] =
                        codec::unfold(static_cast<std::uint16_t>(value.term.folded), value.reference);
            }
        });
    }
    return position;
}

/// One chunk of 16-bit values into the destination.
template <DType kType, DType kTo>
LYNX_DEVICE void store_converted(const ExactDecodeJob& job, const Place& at, std::uint32_t chunk,
                                 const Chunk<kType>& values) {
    Chunk<kTo> out;
    for (unsigned i = 0; i < kChunk; ++i) out.v[i] = converted<kType, kTo>(values.v[i]);
    store_chunk<kTo>(vector_in(job.dst, at) + std::size_t{chunk} * sizeof out, out, job.dst.alignment);
}

/// A group that holds its values as they are.
template <DType kType, DType kTo, class Warp, class Shape>
LYNX_DEVICE void read_raw_group(Warp& warp, const Shape& shape, const ExactDecodeJob& job, const Group& group,
                                const std::byte* from, unsigned alignment) {
    for_each_slab(warp, shape, group, job.coded.tokens, [&](const auto& places) {
        warp.each([&](unsigned lane) {
            const Place& at = places[lane];
            if (!at.there) return;
            const std::byte* vector = from + (at.vector - group.first) * shape.head_dim() * 2;
            for (unsigned row = 0; row < Shape::kRows; ++row) {
                const std::uint32_t chunk = chunk_at(shape, lane, row);
                if (chunk < chunks_of(shape))
                    store_converted<kType, kTo>(
                        job, at, chunk,
                        load_chunk<kType>(vector + std::size_t{chunk} * sizeof(Chunk<kType>), alignment));
            }
        });
        return true;
    });
}

/// The slab's values: references and parameters into the scratch, words decoded there, values out of it, row by row.
template <DType kType, DType kTo, class Warp, class Shape>
LYNX_DEVICE std::uint32_t decode_exact_slab(Warp& warp, const Shape& shape, const ExactDecodeJob& job,
                                            const BitSource& source, std::uint32_t position,
                                            const typename Warp::template PerLane<Place>& places) {
    const auto x = reconstruct_slab(warp, shape, job.coded, kPlaneCount, places);
    for (unsigned row = 0; row < Shape::kRows; ++row) {
        warp.each([&](unsigned lane) {
            const Place& at = places[lane];
            const bool present = at.there && chunk_at(shape, lane, row) < chunks_of(shape);
            const int term = present ? scale_term_of<kType>(job.coded, at) : 0;
            for (unsigned i = 0; i < kChunk; ++i) {
                const std::uint16_t reference = present ? narrow<kType>(x[lane].v[row * kChunk + i]) : 0;
                warp.scratch()[lane * kChunk + i] =
                    present ? slot_of(reference, codec::rice_parameter<kType>(term, reference)) : 0;
            }
        });
        warp.sync();
        position = decode_row<kType>(warp, shape, source, position);
        warp.sync();
        if (position > source.units * 64) return position;
        warp.each([&](unsigned lane) {
            const Place& at = places[lane];
            const std::uint32_t chunk = chunk_at(shape, lane, row);
            if (!at.there || chunk >= chunks_of(shape)) return;
            Chunk<kType> values;
            for (unsigned i = 0; i < kChunk; ++i)
                values.v[i] = static_cast<std::uint16_t>(warp.scratch()[lane * kChunk + i]);
            store_converted<kType, kTo>(job, at, chunk, values);
        });
        warp.sync();
    }
    return position;
}

/// Decodes a group; returns whether its bytes are what an encoder can have written. Needs kRowCoordinates of scratch.
template <DType kType, DType kTo, class Warp, class Shape>
[[nodiscard]] LYNX_DEVICE bool decode_checked(Warp& warp, const Shape& shape, const ExactDecodeJob& job,
                                              std::uint32_t index) {
    const Group group = group_at(shape, job.groups, index);
    const std::byte* ends = job.index + index * kIndexBytes;
    const std::uint32_t begin = index == 0 ? 0 : codec::load<std::uint32_t>(ends - kIndexBytes);
    const std::uint32_t end = codec::load<std::uint32_t>(ends);
    // The third follows from the other two for all groups together; a warp sees its own alone.
    if (end < begin || end - begin > group.raw_units || end > job.payload_bytes / codec::kGroupAlignment) return false;
    const std::byte* from = job.payload + std::size_t{begin} * codec::kGroupAlignment;
    if (end - begin == group.raw_units) {
        const unsigned alignment = begin % 2 == 0 ? job.payload_alignment : std::min(job.payload_alignment, 8u);
        read_raw_group<kType, kTo>(warp, shape, job, group, from, alignment);
        return true;
    }
    const BitSource source{from, end - begin, job.payload_alignment >= codec::kGroupAlignment};
    const std::uint32_t limit = source.units * 64;
    std::uint32_t position = 0;
    for_each_slab(warp, shape, group, job.coded.tokens, [&](const auto& places) {
        position = decode_exact_slab<kType, kTo>(warp, shape, job, source, position, places);
        return position <= limit;
    });
    // What fills the last unit is zero, and there is no unit more.
    return position <= limit && limit - position < 64 && (position % 64 == 0 || source.bits(position) == 0);
}

template <DType kType, DType kTo, class Warp, class Shape>
LYNX_DEVICE void decode_group(Warp& warp, const Shape& shape, const ExactDecodeJob& job, std::uint32_t index) {
    const bool good = decode_checked<kType, kTo>(warp, shape, job, index);
    warp.each([&](unsigned lane) {
        if (!good && lane == 0) Warp::lower(job.fault, index);
    });
}

}  // namespace lynx::cuda
