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
    for_each_run(src, piece, [&](const Run<const std::byte>& run) {
        // In pieces, so that a transposed source is read by cache lines that stay until they are used up.
        in_packs(run, count * size, [&](const Run<const std::byte>& pack) {
            gather(pack, count, size, coded.data() + pack.first * count * size);
        });
    });
}

void decode_raw(ConstByteSpan coded, DType coded_as, const Piece& piece, const MutableTensorView& dst) noexcept {
    const auto count = static_cast<std::size_t>(dst.head_dim());
    const std::size_t coded_size = size_of(coded_as);
    const std::size_t size = size_of(dst.dtype);
    alignas(64) float floats[kPackBytes / sizeof(float)];
    alignas(64) std::byte converted[kPackBytes];
    for_each_run(dst, piece, [&](const Run<std::byte>& run) {
        in_packs(run, count * sizeof(float), [&](const Run<std::byte>& pack) {
            const std::byte* packed = coded.data() + pack.first * count * coded_size;
            if (coded_as != dst.dtype) {
                to_floats(coded_as, packed, pack.vectors * count, floats);
                from_floats(dst.dtype, floats, pack.vectors * count, converted);
                packed = converted;
            }
            scatter(packed, count, size, pack);
        });
    });
}

}  // namespace lynx::codec
