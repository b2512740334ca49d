#include "codec/raw.hpp"

#include "codec/convert.hpp"
#include "codec/strided.hpp"

namespace lynx::codec {
namespace {

void to_floats(DType type, const std::byte* src, std::size_t count, float* dst) noexcept {
    switch (type) {
        case DType::kBF16: return load_floats<DType::kBF16>(src, count, dst);
        case DType::kF16: return load_floats<DType::kF16>(src, count, dst);
        case DType::kF32: return load_floats<DType::kF32>(src, count, dst);
    }
}

void from_floats(DType type, const float* src, std::size_t count, std::byte* dst) noexcept {
    switch (type) {
        case DType::kBF16: return store_floats<DType::kBF16>(src, count, dst);
        case DType::kF16: return store_floats<DType::kF16>(src, count, dst);
        case DType::kF32: return store_floats<DType::kF32>(src, count, dst);
    }
}

}  // namespace

void encode_raw(const TensorView& src, const Piece& piece, ByteSpan coded) noexcept {
    const auto count = static_cast<std::size_t>(src.head_dim());
    const std::size_t size = size_of(src.dtype);
    for_each_run(src, piece.first, piece.count, [&](const Run<const std::byte>& run) {
        // In pieces, so that a transposed source is read by cache lines that stay until they are used up.
        in_packs(run, count * size, [&](const Run<const std::byte>& pack) {
            gather(pack, count, size, coded.data() + pack.first * count * size);
        });
    });
}

void write_values(const std::byte* values, DType values_as, std::size_t count, const Run<std::byte>& run,
                  DType run_as) noexcept {
    alignas(64) float floats[kPackBytes / sizeof(float)];
    alignas(64) std::byte converted[kPackBytes];
    in_packs(run, count * sizeof(float), [&](const Run<std::byte>& pack) {
        const std::byte* packed = values + (pack.first - run.first) * count * size_of(values_as);
        if (values_as != run_as) {
            to_floats(values_as, packed, pack.vectors * count, floats);
            from_floats(run_as, floats, pack.vectors * count, converted);
            packed = converted;
        }
        scatter(packed, count, size_of(run_as), pack);
    });
}

void decode_raw(ConstByteSpan coded, DType coded_as, const Piece& piece, const MutableTensorView& dst) noexcept {
    const auto count = static_cast<std::size_t>(dst.head_dim());
    for_each_run(dst, piece.first, piece.count, [&](const Run<std::byte>& run) {
        write_values(coded.data() + run.first * count * size_of(coded_as), coded_as, count, run, dst.dtype);
    });
}

}  // namespace lynx::codec
