// The reference kernels of the exact tier: bit after bit, in the order of docs/wire-format.md.
#include "codec/convert.hpp"
#include "codec/kernels.hpp"

namespace lynx::codec {
namespace {

class BitWriter {
   public:
    explicit BitWriter(std::byte* to) noexcept : to_(to) {}

    void put(unsigned bit) noexcept {
        word_ |= std::uint64_t{bit} << used_;
        if (++used_ == 64) flush();
    }
    void put(unsigned value, unsigned bits) noexcept {
        for (unsigned j = 0; j < bits; ++j) put((value >> j) & 1u);
    }
    /// The bytes so far, the last ones filled up with zeros.
    [[nodiscard]] std::size_t finish() noexcept {
        if (used_ != 0) flush();
        return bytes_;
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

   private:
    void flush() noexcept {
        store(to_ + bytes_, word_);
        bytes_ += 8;
        word_ = 0;
        used_ = 0;
    }

    std::byte* to_;
    std::size_t bytes_ = 0;
    std::uint64_t word_ = 0;
    unsigned used_ = 0;
};

class BitReader {
   public:
    explicit BitReader(const std::byte* from) noexcept : from_(from) {}

    [[nodiscard]] unsigned get() noexcept {
        const auto byte = std::to_integer<unsigned>(from_[bits_ / 8]);
        return (byte >> (bits_++ % 8)) & 1u;
    }
    [[nodiscard]] unsigned get(unsigned bits) noexcept {
        unsigned value = 0;
        for (unsigned j = 0; j < bits; ++j) value |= get() << j;
        return value;
    }
    [[nodiscard]] std::size_t bits() const noexcept { return bits_; }

   private:
    const std::byte* from_;
    std::size_t bits_ = 0;
};

/// The Rice parameters of a word's values, and the largest that is no kAlwaysEscaped.
struct Parameters {
    unsigned k[kWordValues];
    unsigned most = 0;
};

template <DType kType>
Parameters parameters(const std::byte* scale, const std::byte* reference, std::size_t count) noexcept {
    const int term = scale_term<kType>(f16_to_f32(load<std::uint16_t>(scale)));
    Parameters p;
    for (std::size_t i = 0; i < count; ++i) {
        p.k[i] = rice_parameter<kType>(term, load<std::uint16_t>(reference + 2 * i));
        if (p.k[i] != kAlwaysEscaped) p.most = std::max(p.most, p.k[i]);
    }
    return p;
}

template <DType kType>
void put_word(const std::byte* src, const std::byte* reference, const Parameters& p, std::size_t count,
              BitWriter& out) noexcept {
    unsigned folded[kWordValues];
    for (std::size_t i = 0; i < count; ++i)
        folded[i] = fold(load<std::uint16_t>(src + 2 * i), load<std::uint16_t>(reference + 2 * i));
    for (unsigned j = 0; j < p.most; ++j)
        for (std::size_t i = 0; i < count; ++i)
            if (p.k[i] != kAlwaysEscaped && p.k[i] > j) out.put((folded[i] >> j) & 1u);
    for (unsigned j = 0; j < kUnaryPlanes; ++j)
        for (std::size_t i = 0; i < count; ++i)
            if (p.k[i] != kAlwaysEscaped && folded[i] >> p.k[i] >= j) out.put(folded[i] >> p.k[i] > j ? 1u : 0u);
    for (std::size_t i = 0; i < count; ++i)
        if (p.k[i] == kAlwaysEscaped || folded[i] >> p.k[i] >= kUnaryPlanes) out.put(folded[i], kEscapeBits);
}

template <DType kType>
void get_word(BitReader& in, const std::byte* reference, const Parameters& p, std::size_t count,
              std::byte* dst) noexcept {
    unsigned folded[kWordValues] = {};
    unsigned quotient[kWordValues] = {};
    for (unsigned j = 0; j < p.most; ++j)
        for (std::size_t i = 0; i < count; ++i)
            if (p.k[i] != kAlwaysEscaped && p.k[i] > j) folded[i] |= in.get() << j;
    for (unsigned j = 0; j < kUnaryPlanes; ++j)
        for (std::size_t i = 0; i < count; ++i)
            if (p.k[i] != kAlwaysEscaped && quotient[i] == j) quotient[i] += in.get();
    for (std::size_t i = 0; i < count; ++i) {
        const bool escaped = p.k[i] == kAlwaysEscaped || quotient[i] == kUnaryPlanes;
        const unsigned value = escaped ? in.get(kEscapeBits) : folded[i] | (quotient[i] << p.k[i]);
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
    unsigned ones = 0;
    for (std::size_t j = 0; j < filling; ++j) ones |= in.get();
    return ones == 0;
}

template std::size_t encode_exact_scalar<DType::kBF16>(const ExactEncodeJob&) noexcept;
template std::size_t encode_exact_scalar<DType::kF16>(const ExactEncodeJob&) noexcept;
template bool decode_exact_scalar<DType::kBF16>(const ExactDecodeJob&) noexcept;
template bool decode_exact_scalar<DType::kF16>(const ExactDecodeJob&) noexcept;

}  // namespace lynx::codec
