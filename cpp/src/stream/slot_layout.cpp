#include "lynx/slot_layout.hpp"

#include <algorithm>
#include <tuple>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/arrival_tag.hpp"
#include "stream/tensor_head.hpp"

namespace lynx {

namespace {

// Keeps coded tensors on cache-line boundaries; part of the wire format.
constexpr std::size_t kAlignment = 64;

constexpr std::size_t align(std::size_t n) {
    return (n + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr std::uint64_t key(std::uint32_t layer, TensorRole role) {
    return std::uint64_t{layer} << 8 | static_cast<std::uint8_t>(role);
}

constexpr std::uint64_t pieces_of(std::uint64_t bytes, std::uint32_t chunk_bytes) {
    return (bytes + chunk_bytes - 1) / chunk_bytes;
}

}  // namespace

SlotLayout::SlotLayout(const Manifest& manifest)
    : chunk_bytes_(manifest.chunk_bytes == 0 ? kDefaultChunkBytes : manifest.chunk_bytes),
      parts_(manifest.parts),
      rungs_(manifest.rungs),
      checksums_(manifest.checksums) {
    manifest.validate();
    std::uint64_t chunks = 0;
    std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t>> by_place;
    for (const ManifestTensor& t : manifest.tensors) {
        by_place.emplace_back(key(t.layer, t.role), t.first_token, t.first_head, tensors());
        Tensor tensor{PlaneLayout(t.spec), bytes_, 0, static_cast<std::uint32_t>(chunks), {}, 0};
        tensor.exact_bytes = tensor.layout.part(exact_part(), rungs_).bytes;
        for (unsigned p = 0; p < kMaxParts; ++p) {
            tensor.part_begin[p] = static_cast<std::uint32_t>(chunks);
            if (p < parts_) chunks += pieces_of(tensor.layout.part(p, rungs_).bytes, chunk_bytes_);
            if (chunks > ArrivalTag::kMaxChunks)
                throw InvalidArgument(text("manifest: the tensors take more than ", ArrivalTag::kMaxChunks,
                                           " writes of ", chunk_bytes_, " bytes; raise chunk_bytes"));
        }
        tensor.part_begin[kMaxParts] = static_cast<std::uint32_t>(chunks);
        const auto own = static_cast<std::uint32_t>(chunks - tensor.first_chunk);
        tensor.head_bytes = own == 0 ? 0 : align(TensorHead::bytes(own, checksums_));
        bytes_ += tensor.head_bytes + align(tensor.layout.bytes());
        tensors_.push_back(tensor);
    }
    chunks_ = static_cast<std::uint32_t>(chunks);
    std::sort(by_place.begin(), by_place.end());
    for (const auto& [layer_and_role, token, head, index] : by_place) {
        piece_keys_.push_back(layer_and_role);
        pieces_.push_back(index);
    }
}

Extent SlotLayout::head(std::uint32_t tensor) const {
    const Tensor& t = tensors_.at(tensor);
    return {t.offset, t.head_bytes};
}

Extent SlotLayout::coded(std::uint32_t tensor) const {
    const Tensor& t = tensors_.at(tensor);
    return {t.offset + t.head_bytes, t.layout.bytes()};
}

Extent SlotLayout::part(std::uint32_t tensor, unsigned part) const {
    const Extent whole = coded(tensor);
    if (part >= parts_) return {whole.end(), 0};
    const Extent e = tensors_[tensor].layout.part(part, rungs_);
    if (part == 0) return {head(tensor).offset, head(tensor).bytes + e.bytes};
    return {whole.offset + e.offset, e.bytes};
}

std::uint64_t SlotLayout::part_bytes(unsigned part_index) const {
    std::uint64_t sum = 0;
    for (std::uint32_t t = 0; t < tensors(); ++t) sum += part(t, part_index).bytes;
    return sum;
}

SlotLayout::Chunk SlotLayout::chunk(std::uint32_t number) const {
    const auto after = std::upper_bound(tensors_.begin(), tensors_.end(), number,
                                        [](std::uint32_t n, const Tensor& t) { return n < t.first_chunk; });
    const Tensor& t = *(after - 1);
    unsigned part = 0;
    while (number >= t.part_begin[part + 1]) ++part;
    const Extent whole = t.layout.part(part, rungs_);
    const std::size_t begin = std::size_t{number - t.part_begin[part]} * chunk_bytes_;
    const std::size_t end = part == exact_part() ? std::max(t.exact_bytes, begin) : whole.bytes;
    Extent extent{t.offset + t.head_bytes + whole.offset + begin, std::min<std::size_t>(chunk_bytes_, end - begin)};
    if (number == t.first_chunk) extent = {t.offset, t.head_bytes + extent.bytes};
    return {static_cast<std::uint32_t>(after - tensors_.begin() - 1), part, extent};
}

SlotLayout::Range SlotLayout::chunks(std::uint32_t tensor, unsigned part) const {
    const Tensor& t = tensors_.at(tensor);
    return {t.part_begin[part], t.part_begin[part + 1]};
}

SlotLayout::Range SlotLayout::exact_chunks(std::uint32_t tensor, std::uint64_t exact_bytes) const {
    const Range most = chunks(tensor, exact_part());
    const auto count = std::min<std::uint64_t>(pieces_of(exact_bytes, chunk_bytes_), most.count());
    return {most.begin, most.begin + static_cast<std::uint32_t>(count)};
}

Extent SlotLayout::exact_extent(std::uint32_t tensor, std::uint64_t exact_bytes) const {
    const Extent most = part(tensor, exact_part());
    // Compared first: what a stranger claims may be too large to be rounded up.
    return {most.offset, exact_bytes < most.bytes ? std::min(align(exact_bytes), most.bytes) : most.bytes};
}

std::span<const std::uint32_t> SlotLayout::pieces(std::uint32_t layer, TensorRole role) const noexcept {
    const auto [begin, end] = std::equal_range(piece_keys_.begin(), piece_keys_.end(), key(layer, role));
    return {pieces_.data() + (begin - piece_keys_.begin()), static_cast<std::size_t>(end - begin)};
}

}  // namespace lynx
