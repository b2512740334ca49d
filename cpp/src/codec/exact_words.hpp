// The exact tier's words for kernels with BMI2: the way between the vector registers, which hold values, and the
// general ones, which hold planes of 64 bits that PEXT closes up and PDEP spreads. An instruction set brings what makes
// planes of values and values of planes. Always inlined: see cpp/CMakeLists.txt. docs/tuning.md says what bounds it.
#pragma once

#include "codec/bit_stream.hpp"
#include "codec/convert.hpp"
#include "codec/kernels.hpp"
#include "codec/prefetch.hpp"

namespace lynx::codec {

template <DType kType>
inline constexpr int kMaxParameter = kFloat16Format<kType>.mantissa_bits + 1;

/// The planes of a word. They take the way through memory, several at once.
struct alignas(64) WordPlanes {
    std::uint64_t has[16];                                 ///< which values have a bit in the plane
    std::uint64_t bits[16];                                ///< the bits themselves
    std::uint64_t more[8];                                 ///< unary planes
    std::uint16_t escapes[kWordValues + kWordValues / 2];  ///< escaped values, closed up, zeros behind
    std::uint64_t coded;
    std::uint64_t escaped;
};

/// Where a word is.
struct Place {
    std::ptrdiff_t offset;  ///< from the group's first value, in the source or the destination
    const std::byte* reference;
    int term;
    std::uint64_t valid;  ///< which of its values there are
};

/// Words that are worked on at a time. The encoder makes planes of so many before it puts them, the decoder's steps are
/// kLag words apart: none waits for what it has just stored, and one word's chain of unary planes runs beside other
/// words' vector operations. (The encoder has no such chain, and gains nothing by it.)
constexpr std::size_t kInWork = 8;
constexpr std::size_t kLag = 3;
static_assert(2 * kLag < kInWork);
/// Most words have no escaped value or a few. Up to this many are read or written without asking whether there
/// are any, since a branch on that would be mispredicted time and again.
constexpr unsigned kEscapesAtOnce = 4;

[[gnu::always_inline]] inline unsigned at_most(unsigned value, unsigned most) noexcept {
    return value < most ? value : most;
}

/// Appends the word.
template <DType kType>
[[gnu::always_inline]] inline void put(const WordPlanes& planes, WordWriter& out) noexcept {
#pragma GCC unroll 16
    for (int j = 0; j < kMaxParameter<kType>; ++j) out.put_masked(planes.bits[j], planes.has[j]);
    out.put_masked(planes.more[0], planes.coded);
#pragma GCC unroll 8
    for (unsigned j = 1; j < kUnaryPlanes; ++j) out.put_masked(planes.more[j], planes.more[j - 1]);
    const auto count = static_cast<unsigned>(_mm_popcnt_u64(planes.escaped));
    for (unsigned i = 0; i == 0 || i < count; i += kEscapesAtOnce) {
        std::uint64_t bits;
        std::memcpy(&bits, planes.escapes + i, sizeof bits);
        out.put(bits, kEscapeBits * at_most(count - i, kEscapesAtOnce));
    }
}

/// The unary planes. Returns which values are asked for one more.
[[gnu::always_inline]] inline std::uint64_t get_unary(WordReader& in, std::uint64_t asked,
                                                      std::uint64_t* planes) noexcept {
    planes[0] = asked = in.get_masked(asked);
    planes[1] = asked = in.get_masked(asked);
    // Each plane says where the next one begins: the longest chain of the decoder. Four planes nearly always fit one
    // look at 64 bits, which is shifted on instead of loaded again.
    std::uint64_t window = in.peek();
    std::uint64_t mask = asked;
    unsigned used = 0;
#pragma GCC unroll 8
    for (unsigned j = 2; j < kUnaryPlanes; ++j) {
        const auto count = static_cast<unsigned>(_mm_popcnt_u64(mask));
        planes[j] = mask = _pdep_u64(window, mask);
        window >>= count % 64;
        used += count;
    }
    if (used <= 64) [[likely]] {
        in.skip(used);
        return mask;
    }
    for (unsigned j = 2; j < kUnaryPlanes; ++j) planes[j] = asked = in.get_masked(asked);
    return asked;
}

/// Reads a word's planes, the bits' with the last one first, given its masks.
template <DType kType>
[[gnu::always_inline]] inline void get(WordReader& in, std::uint64_t valid, WordPlanes& planes) noexcept {
    // Where a plane lies takes no bit of this word, only masks that are there already.
    std::size_t ahead = 0;
#pragma GCC unroll 16
    for (int j = 0; j < kMaxParameter<kType>; ++j) {
        planes.bits[j ^ 7] = _pdep_u64(in.peek(ahead), planes.has[j]);
        ahead += static_cast<std::size_t>(_mm_popcnt_u64(planes.has[j]));
    }
    in.skip(ahead);
    const std::uint64_t asked = get_unary(in, planes.coded, planes.more);
    planes.escaped = asked | (valid & ~planes.coded);
    const auto count = static_cast<unsigned>(_mm_popcnt_u64(planes.escaped));
    for (unsigned i = 0; i == 0 || i < count; i += kEscapesAtOnce) {
        const std::uint64_t bits = in.peek();
        std::memcpy(planes.escapes + i, &bits, sizeof bits);
        in.skip(std::size_t{kEscapeBits} * at_most(count - i, kEscapesAtOnce));
    }
}

/// Asks for what a word of the next group will want, while this one's word is coded. A hardware prefetcher does not
/// follow: there are too many streams, each a few lines at a time; and asked for all at once, most of it is dropped.
[[gnu::always_inline]] inline void prefetch_planes(const std::byte* planes, std::size_t plane_step,
                                                   std::size_t word) noexcept {
    // A word is 8 bytes of each of 8 planes: a cache line of one of them for each word.
    constexpr std::size_t kCacheLine = 64;
    prefetch(planes, static_cast<std::ptrdiff_t>(word % kPlaneCount * plane_step + word / kPlaneCount * kCacheLine));
}

/// The same of a row of the source or the destination, `ahead` bytes from this word's.
[[gnu::always_inline]] inline void prefetch_values(const std::byte* row, std::ptrdiff_t ahead) noexcept {
    constexpr std::ptrdiff_t kCacheLine = 64;
    prefetch(row, ahead);
    prefetch(row, ahead + kCacheLine);
}

/// Calls use(place) for all words of a group, until it returns false.
template <DType kType, class Job, class Use>
[[gnu::always_inline]] inline bool for_each_word(const Job& job, std::ptrdiff_t step, Use&& use) noexcept {
    std::size_t word = 0;
    for (std::size_t v = 0; v < job.vectors; ++v) {
        const int term = scale_term<kType>(_cvtsh_ss(load<std::uint16_t>(job.scales + 2 * v)));
        for (std::size_t i = 0; i < job.head_dim; i += kWordValues) {
            prefetch_planes(job.planes_ahead, job.plane_step, word++);
            const std::size_t left = job.head_dim - i;
            const Place place{static_cast<std::ptrdiff_t>(v) * step + static_cast<std::ptrdiff_t>(2 * i),
                              job.reference + (v * job.head_dim + i) * 2, term,
                              left >= kWordValues ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1};
            if (!use(place)) return false;
        }
    }
    return true;
}

/// kEncodeWord makes a word's planes and masks of its source and its place.
template <DType kType, void (*kEncodeWord)(const std::byte*, const Place&, WordPlanes&) noexcept>
[[gnu::always_inline]] inline std::size_t encode_words(const ExactEncodeJob& job) noexcept {
    WordWriter out(job.dst);
    WordPlanes planes[kInWork];
    std::size_t count = 0;
    const auto put_all = [&]() __attribute__((always_inline)) {
        for (std::size_t w = 0; w < count; ++w) {
            put<kType>(planes[w], out);
            if (out.bytes() >= job.limit) return false;
        }
        count = 0;
        return true;
    };
    const auto encode = [&](const Place& place) __attribute__((always_inline)) {
        prefetch_values(job.src + place.offset, job.ahead);
        kEncodeWord(job.src, place, planes[count]);
        return ++count < kInWork || put_all();
    };
    if (!for_each_word<kType>(job, job.src_step, encode) || !put_all()) return job.limit;
    const std::size_t bytes = out.finish();
    return bytes < job.limit ? bytes : job.limit;
}

/// kMaskWord makes a word's masks of its place, kDecodeWord its values of its planes.
template <DType kType, void (*kMaskWord)(const Place&, WordPlanes&) noexcept,
          void (*kDecodeWord)(const WordPlanes&, const Place&, std::byte*) noexcept>
[[gnu::always_inline]] inline bool decode_words(const ExactDecodeJob& job) noexcept {
    WordReader in(job.src);
    WordPlanes planes[kInWork];
    Place places[kInWork];
    for (WordPlanes& p : planes) {  // planes that are transposed with the others and hold nothing
        for (std::size_t j = kUnaryPlanes; j < 8; ++j) p.more[j] = 0;
        for (std::size_t j = 8; j < 16; ++j) p.bits[j] = 0;
    }
    std::size_t begun = 0;  // words
    std::size_t got = 0;
    std::size_t written = 0;
    const auto get_word = [&](std::size_t word) __attribute__((always_inline)) {
        get<kType>(in, places[word % kInWork].valid, planes[word % kInWork]);
        return in.bits() <= 8 * job.src_bytes;
    };
    const auto write_word = [&](std::size_t word) __attribute__((always_inline)) {
        const Place& place = places[word % kInWork];
        prefetch_values(job.dst + place.offset, job.ahead);
        kDecodeWord(planes[word % kInWork], place, job.dst);
    };
    const auto decode = [&](const Place& place) __attribute__((always_inline)) {
        places[begun % kInWork] = place;
        kMaskWord(place, planes[begun % kInWork]);
        ++begun;
        if (begun > kLag && !get_word(got++)) return false;
        if (begun > 2 * kLag) write_word(written++);
        return true;
    };
    if (!for_each_word<kType>(job, job.dst_step, decode)) return false;
    for (; got < begun; ++got)
        if (!get_word(got)) return false;
    for (; written < begun; ++written) write_word(written);
    return in.ends_in(job.src_bytes);
}

}  // namespace lynx::codec
