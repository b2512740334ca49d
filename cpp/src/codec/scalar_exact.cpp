// The reference kernels of the exact tier: plane after plane, in the order of docs/wire-format.md.
#include "codec/convert.hpp"
#include "codec/kernels.hpp"

namespace lynx::codec {
namespace {

/// Bits of a plane, closed up. Which values have one is chance, so that nothing here branches on it.
class Plane {
   public:
    /// Adds `bit` if `there` is 1, and nothing if it is 0.
    void add_if(unsigned there, unsigned bit) noexcept {
        bits_ |= std::uint64_t{bit & there} << count_;
        count_ += there;
    }
    [[nodiscard]] std::uint64_t bits() const noexcept { return bits_; }
    [[nodiscard]] unsigned count() const noexcept { return count_; }

   private:
    std::uint64_t bits_ = 0;
    unsigned count_ = 0;
};

class BitWriter {
   public:
    explicit BitWriter(std::byte* to) noexcept : to_(to) {}

    /// The lowest `count` bits, 0 to 64; those above are zero.
    void put(std::uint64_t bits, unsigned count) noexcept {
        word_ |= bits << used_;
        const unsigned room = 64 - used_;
        used_ += count;
        if (count < room) return;
        store(to_ + bytes_, word_);
        bytes_ += 8;
        word_ = room == 64 ? 0 : bits >> room;
        used_ -= 64;
    }
    void put(const Plane& plane) noexcept { put(plane.bits(), plane.count()); }

    /// The bytes so far, the last ones filled up with zeros.
    [[nodiscard]] std::size_t finish() noexcept {
        if (used_ != 0) put(0, 64 - used_);
        return bytes_;
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

   private:
    std::byte* to_;
    std::size_t bytes_ = 0;
    std::uint64_t word_ = 0;
    unsigned used_ = 0;
};

class BitReader {
   public:
    explicit BitReader(const std::byte* from) noexcept : from_(from) {}

    /// The next 64 bits; what lies behind the group's means nothing.
    [[nodiscard]] std::uint64_t peek() const noexcept {
        const std::byte* at = from_ + bits_ / 8;
        const auto shift = static_cast<unsigned>(bits_ % 8);
        const auto next = std::to_integer<std::uint64_t>(at[8]);
        return load<std::uint64_t>(at) >> shift | (next << 1 << (63 - shift));
    }
    void skip(unsigned bits) noexcept { bits_ += bits; }
    [[nodiscard]] std::uint64_t get(unsigned bits) noexcept {
        const std::uint64_t value = peek() & ((std::uint64_t{1} << bits) - 1);
        skip(bits);
        return value;
    }
    [[nodiscard]] std::size_t bits() const noexcept { return bits_; }

   private:
    const std::byte* from_;
    std::size_t bits_ = 0;
};

/// A plane's bits, handed out in their order.
class PlaneReader {
   public:
    explicit PlaneReader(BitReader& in) noexcept : in_(in), window_(in.peek()) {}
    ~PlaneReader() { in_.skip(used_); }
    PlaneReader(const PlaneReader&) = delete;
    PlaneReader& operator=(const PlaneReader&) = delete;

    /// The next bit if `there` is 1; 0, and it stays where it is, if `there` is 0.
    [[nodiscard]] unsigned get_if(unsigned there) noexcept {
        const unsigned bit = static_cast<unsigned>(window_) & there;
        window_ >>= there;
        used_ += there;
        return bit;
    }

   private:
    BitReader& in_;
    std::uint64_t window_;
    unsigned used_ = 0;
};

/// The Rice parameters of a word's values, 0 where a value is always escaped.
struct Parameters {
    unsigned k[kWordValues];
    unsigned coded[kWordValues];  ///< 0 where a value is always escaped, else 1
    unsigned most = 0;            ///< the largest k
};

template <DType kType>
Parameters parameters(const std::byte* scale, const std::byte* reference, std::size_t count) noexcept {
    const int term = scale_term<kType>(f16_to_f32(load<std::uint16_t>(scale)));
    Parameters p;
    for (std::size_t i = 0; i < count; ++i) {
        const unsigned k = rice_parameter<kType>(term, load<std::uint16_t>(reference + 2 * i));
        p.coded[i] = k == kAlwaysEscaped ? 0 : 1;
        p.k[i] = p.coded[i] * k;
        p.most = std::max(p.most, p.k[i]);
    }
    return p;
}

template <DType kType>
void put_word(const std::byte* src, const std::byte* reference, const Parameters& p, std::size_t count,
              BitWriter& out) noexcept {
    unsigned folded[kWordValues];
    unsigned quotient[kWordValues];
    for (std::size_t i = 0; i < count; ++i) {
        folded[i] = fold(load<std::uint16_t>(src + 2 * i), load<std::uint16_t>(reference + 2 * i));
        quotient[i] = std::min(folded[i] >> p.k[i], kUnaryPlanes);
    }
    for (unsigned j = 0; j < p.most; ++j) {
        Plane plane;
        for (std::size_t i = 0; i < count; ++i) plane.add_if(p.k[i] > j ? 1 : 0, folded[i] >> j);
        out.put(plane);
    }
    for (unsigned j = 0; j < kUnaryPlanes; ++j) {
        Plane plane;
        for (std::size_t i = 0; i < count; ++i)
            plane.add_if(p.coded[i] & (quotient[i] >= j ? 1u : 0u), quotient[i] > j ? 1 : 0);
        out.put(plane);
    }
    for (std::size_t i = 0; i < count; ++i)
        if (p.coded[i] == 0 || quotient[i] == kUnaryPlanes) out.put(folded[i], kEscapeBits);
}

template <DType kType>
void get_word(BitReader& in, const std::byte* reference, const Parameters& p, std::size_t count,
              std::byte* dst) noexcept {
    unsigned folded[kWordValues] = {};
    unsigned quotient[kWordValues] = {};
    for (unsigned j = 0; j < p.most; ++j) {
        PlaneReader plane(in);
        for (std::size_t i = 0; i < count; ++i) folded[i] |= plane.get_if(p.k[i] > j ? 1 : 0) << j;
    }
    for (unsigned j = 0; j < kUnaryPlanes; ++j) {
        PlaneReader plane(in);
        for (std::size_t i = 0; i < count; ++i) quotient[i] += plane.get_if(p.coded[i] & (quotient[i] == j ? 1u : 0u));
    }
    for (std::size_t i = 0; i < count; ++i) {
        const bool escaped = p.coded[i] == 0 || quotient[i] == kUnaryPlanes;
        const unsigned value =
            escaped ? static_cast<unsigned>(in.get(kEscapeBits)) : folded[i] | (quotient[i] << p.k[i]);
        store(dst + 2 * i, unfold(static_cast<std::uint16_t>(value), load<std::uint16_t>(reference + 2 * i)));
    }
}

}  // namespace

template <DType kType>
std::size_t encode_exact_scalar(const ExactEncodeJob& job) noexcept {
    BitWriter out(job.dst);
    for (std::size_t v = 0; v < job.vectors; ++v) {
        const std::byte* src = job.src + static_cast<std::ptrdiff_t>(v) * job.src_step;
        const std::byte* reference = job.reference + v * job.head_dim * 2;
        for (std::size_t i = 0; i < job.head_dim; i += kWordValues) {
            const std::size_t count = std::min<std::size_t>(kWordValues, job.head_dim - i);
            const Parameters p = parameters<kType>(job.scales + 2 * v, reference + 2 * i, count);
            put_word<kType>(src + 2 * i, reference + 2 * i, p, count, out);
            if (out.bytes() >= job.limit) return job.limit;
        }
    }
    return std::min(out.finish(), job.limit);
}

template <DType kType>
bool decode_exact_scalar(const ExactDecodeJob& job) noexcept {
    BitReader in(job.src);
    for (std::size_t v = 0; v < job.vectors; ++v) {
        std::byte* dst = job.dst + static_cast<std::ptrdiff_t>(v) * job.dst_step;
        const std::byte* reference = job.reference + v * job.head_dim * 2;
        for (std::size_t i = 0; i < job.head_dim; i += kWordValues) {
            const std::size_t count = std::min<std::size_t>(kWordValues, job.head_dim - i);
            const Parameters p = parameters<kType>(job.scales + 2 * v, reference + 2 * i, count);
            get_word<kType>(in, reference + 2 * i, p, count, dst + 2 * i);
            if (in.bits() > 8 * job.src_bytes) return false;
        }
    }
    const std::size_t filling = 8 * job.src_bytes - in.bits();
    if (filling >= 8 * kGroupAlignment) return false;
    return filling == 0 || in.get(static_cast<unsigned>(filling)) == 0;
}

template std::size_t encode_exact_scalar<DType::kBF16>(const ExactEncodeJob&) noexcept;
template std::size_t encode_exact_scalar<DType::kF16>(const ExactEncodeJob&) noexcept;
template bool decode_exact_scalar<DType::kBF16>(const ExactDecodeJob&) noexcept;
template bool decode_exact_scalar<DType::kF16>(const ExactDecodeJob&) noexcept;

}  // namespace lynx::codec
