#include "lynx/codec.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "codec/checks.hpp"
#include "codec/exact.hpp"
#include "codec/float_environment.hpp"
#include "codec/kernels.hpp"
#include "codec/pieces.hpp"
#include "codec/raw.hpp"
#include "codec/strided.hpp"
#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

/// Every instruction set of this build that the CPU runs, the fastest first.
struct CodecRegistry {
    static const std::vector<Codec>& all() {
        static const std::vector<Codec> codecs = [] {
            std::vector<Codec> found;
            for (const codec::Kernels* kernels : codec::built_kernels())
                if (kernels->supported()) found.push_back(Codec(*kernels));
            return found;
        }();
        return codecs;
    }

    static const Codec& find(std::string_view name, const std::string& asked_by) {
        std::string names;
        for (const Codec& c : all()) {
            if (c.name() == name) return c;
            names += names.empty() ? "" : ", ";
            names += c.name();
        }
        throw InvalidArgument(
            text(asked_by, " asks for the codec '", name, "', which this CPU or this build lacks; it has: ", names));
    }
};

namespace {

template <class Byte>
void check_host_view(const char* call, const char* which, const BasicTensorView<Byte>& view, const TensorSpec& spec) {
    codec::check_view(call, which, view, spec);
    if (view.strides[2] == 0 && view.head_dim() > 1 && spec.tokens != 0)
        throw InvalidArgument(text(call, ": ", which, ".strides[2] is 0, so that all elements of a vector are one; ",
                                   "strides have to be given, contiguous_strides(shape) for a tensor without gaps"));
}

const char* words_of(codec::ExactFault fault) noexcept {
    switch (fault) {
        case codec::ExactFault::kEndsTooEarly: return "ends before it begins";
        case codec::ExactFault::kTooLong: return "is longer than its values";
        case codec::ExactFault::kBadBits: return "holds bits that no encoder writes";
    }
    return "is damaged";
}

template <class Byte>
bool elements_adjacent(const codec::Run<Byte>& run, std::size_t size) noexcept {
    return run.element == static_cast<std::ptrdiff_t>(size);
}

/// Calls use(head, token, index of the vector, its place in sinks()) for each sink vector.
template <class Use>
void for_each_sink(const PlaneLayout& layout, Use&& use) {
    const TensorSpec& spec = layout.spec();
    const std::size_t bytes = std::size_t{kPlaneCount - spec.anchor_bits} * (spec.head_dim / 8);
    std::size_t at = layout.sinks().offset;
    for (std::uint32_t head = 0; head < spec.heads; ++head) {
        for (std::uint32_t token = 0; token < layout.sink_tokens(); ++token) {
            use(head, token, std::size_t{head} * spec.tokens + token, at);
            at += bytes;
        }
    }
}

void copy_sinks(const PlaneLayout& layout, ByteSpan coded) {
    const unsigned anchor_bits = layout.spec().anchor_bits;
    const std::size_t row_bytes = layout.spec().head_dim / 8;
    for_each_sink(layout, [&](std::uint32_t, std::uint32_t, std::size_t vector, std::size_t at) {
        for (unsigned p = anchor_bits; p < kPlaneCount; ++p)
            std::memcpy(coded.data() + at + (p - anchor_bits) * row_bytes,
                        coded.data() + layout.plane(p).offset + vector * row_bytes, row_bytes);
    });
}

/// The sink vectors from all their bits, without the residual's planes.
void decode_sinks(const PlaneLayout& layout, ConstByteSpan coded, codec::DecodeFn decode_vectors,
                  const MutableTensorView& dst) {
    const unsigned anchor_bits = layout.spec().anchor_bits;
    const std::uint32_t head_dim = layout.spec().head_dim;
    const std::size_t row_bytes = head_dim / 8;
    const std::size_t size = size_of(dst.dtype);
    std::byte planes[kPlaneCount * kMaxHeadDim / 8];
    alignas(64) std::byte packed[kMaxHeadDim * sizeof(float)];
    for_each_sink(layout, [&](std::uint32_t head, std::uint32_t token, std::size_t vector, std::size_t at) {
        for (unsigned p = 0; p < anchor_bits; ++p)
            std::memcpy(planes + p * row_bytes, coded.data() + layout.plane(p).offset + vector * row_bytes, row_bytes);
        std::memcpy(planes + anchor_bits * row_bytes, coded.data() + at, (kPlaneCount - anchor_bits) * row_bytes);
        decode_vectors({.scales = coded.data() + layout.scales().offset + 2 * vector,
                        .zeros = coded.data() + layout.zeros().offset + 2 * vector,
                        .planes = planes,
                        .plane_step = row_bytes,
                        .plane_count = kPlaneCount,
                        .vectors = 1,
                        .head_dim = head_dim,
                        .dst = packed,
                        .dst_step = 0});
        const auto element = dst.strides[2] * static_cast<std::ptrdiff_t>(size);
        codec::scatter(packed, head_dim, size, {dst.vector(head, token), 0, element, 1, vector});
    });
}

}  // namespace

const Codec& Codec::best() {
    static const Codec& chosen = []() -> const Codec& {
        const char* forced = std::getenv("LYNX_ISA");
        if (forced == nullptr || *forced == '\0') return CodecRegistry::all().front();
        return CodecRegistry::find(forced, "the environment variable LYNX_ISA");
    }();
    return chosen;
}

const Codec& Codec::by_name(std::string_view name) {
    return CodecRegistry::find(name, "Codec::by_name");
}

std::vector<std::string_view> Codec::available() {
    std::vector<std::string_view> names;
    for (const Codec& c : CodecRegistry::all()) names.push_back(c.name());
    return names;
}

std::string_view Codec::name() const noexcept {
    return kernels_->name;
}

EncodeStats Codec::encode(const TensorView& src, const PlaneLayout& layout, ByteSpan dst, Executor* executor) const {
    const TensorSpec& spec = layout.spec();
    check_host_view("Codec::encode", "src", src, spec);
    codec::check_size("Codec::encode", "dst", dst.size(), layout);
    const std::size_t size = size_of(src.dtype);
    const std::size_t vector_bytes = spec.head_dim * size;
    if (spec.coding == Coding::kRaw) {
        if (src.dtype != spec.dtype)
            throw InvalidArgument(text("Codec::encode: src.dtype is ", name_of(src.dtype), " and the raw layout's is ",
                                       name_of(spec.dtype),
                                       "; raw sends the bits as they are, so they have to be the same"));
        codec::for_each_piece(executor, layout.vectors(), vector_bytes,
                              [&](const codec::Piece& piece) noexcept { codec::encode_raw(src, piece, dst); });
        return {};
    }

    const codec::EncodeFn encode_vectors = kernels_->encode[static_cast<std::size_t>(src.dtype)];
    const auto run_kernel = [&](const std::byte* data, std::ptrdiff_t step, std::size_t first, std::size_t count) {
        return encode_vectors({.src = data,
                               .src_step = step,
                               .vectors = count,
                               .head_dim = spec.head_dim,
                               .scales = dst.data() + layout.scales().offset + 2 * first,
                               .zeros = dst.data() + layout.zeros().offset + 2 * first,
                               .planes = dst.data() + layout.plane(0).offset + spec.head_dim / 8 * first,
                               .plane_step = layout.plane(0).bytes});
    };
    std::atomic<std::size_t> nonfinite_vectors{0};
    codec::for_each_piece(executor, layout.vectors(), vector_bytes, [&](const codec::Piece& piece) noexcept {
        std::size_t nonfinite = 0;
        codec::for_each_run(src, piece.first, piece.count, [&](const codec::Run<const std::byte>& run) {
            if (elements_adjacent(run, size)) {
                nonfinite += run_kernel(run.data, run.step, run.first, run.vectors);
                return;
            }
            alignas(64) std::byte packed[codec::kPackBytes];
            codec::in_packs(run, vector_bytes, [&](const codec::Run<const std::byte>& pack) {
                codec::gather(pack, spec.head_dim, size, packed);
                nonfinite += run_kernel(packed, static_cast<std::ptrdiff_t>(vector_bytes), pack.first, pack.vectors);
            });
        });
        nonfinite_vectors.fetch_add(nonfinite, std::memory_order_relaxed);
    });
    copy_sinks(layout, dst);
    return {.nonfinite_vectors = nonfinite_vectors.load(std::memory_order_relaxed)};
}

void Codec::decode(const PlaneLayout& layout, ConstByteSpan src, unsigned planes, const MutableTensorView& dst,
                   Executor* executor) const {
    const TensorSpec& spec = layout.spec();
    check_host_view("Codec::decode", "dst", dst, spec);
    codec::check_size("Codec::decode", "src", src.size(), layout);
    codec::check_planes("Codec::decode", layout, planes);
    const std::size_t size = size_of(dst.dtype);
    const std::size_t vector_bytes = spec.head_dim * size;
    if (spec.coding == Coding::kRaw) {
        codec::for_each_piece(executor, layout.vectors(), vector_bytes, [&](const codec::Piece& piece) noexcept {
            codec::decode_raw(src, spec.dtype, piece, dst);
        });
        return;
    }

    const codec::DecodeFn decode_vectors = kernels_->decode[static_cast<std::size_t>(dst.dtype)];
    const auto run_kernel = [&](std::byte* data, std::ptrdiff_t step, std::size_t first, std::size_t count) {
        decode_vectors({.scales = src.data() + layout.scales().offset + 2 * first,
                        .zeros = src.data() + layout.zeros().offset + 2 * first,
                        .planes = src.data() + layout.plane(0).offset + spec.head_dim / 8 * first,
                        .plane_step = layout.plane(0).bytes,
                        .plane_count = planes,
                        .vectors = count,
                        .head_dim = spec.head_dim,
                        .dst = data,
                        .dst_step = step});
    };
    codec::for_each_piece(executor, layout.vectors(), vector_bytes, [&](const codec::Piece& piece) noexcept {
        codec::for_each_run(dst, piece.first, piece.count, [&](const codec::Run<std::byte>& run) {
            if (elements_adjacent(run, size)) return run_kernel(run.data, run.step, run.first, run.vectors);
            alignas(64) std::byte packed[codec::kPackBytes];
            codec::in_packs(run, vector_bytes, [&](const codec::Run<std::byte>& pack) {
                run_kernel(packed, static_cast<std::ptrdiff_t>(vector_bytes), pack.first, pack.vectors);
                codec::scatter(packed, spec.head_dim, size, pack);
            });
        });
    });
    if (planes >= spec.anchor_bits && planes < kPlaneCount) {
        const codec::DefaultFloatEnvironment environment;
        decode_sinks(layout, src, decode_vectors, dst);
    }
}

std::size_t Codec::encode_exact(const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                                Executor* executor) const {
    const TensorSpec& spec = layout.spec();
    check_host_view("Codec::encode_exact", "src", src, spec);
    codec::check_size("Codec::encode_exact", "coded", coded.size(), layout);
    codec::check_exact("Codec::encode_exact", layout);
    if (src.dtype != spec.dtype)
        throw InvalidArgument(text("Codec::encode_exact: src.dtype is ", name_of(src.dtype), " and the layout's is ",
                                   name_of(spec.dtype), "; the exact tier restores bits, so they have to be the same"));
    return codec::encode_exact(*kernels_, src, layout, coded, executor);
}

void Codec::decode_exact(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& dst,
                         Executor* executor) const {
    check_host_view("Codec::decode_exact", "dst", dst, layout.spec());
    codec::check_size("Codec::decode_exact", "coded", coded.size(), layout);
    codec::check_exact("Codec::decode_exact", layout);
    const std::optional<codec::FaultyGroup> faulty = codec::decode_exact(*kernels_, layout, coded, dst, executor);
    if (faulty)
        throw CorruptData(text("Codec::decode_exact: group ", faulty->index, " of ", layout.groups(), ", vectors ",
                               faulty->index * layout.group_vectors(), " onwards, ", words_of(faulty->fault),
                               "; dst is overwritten in part, so decode its planes again or drop it"));
}

}  // namespace lynx
