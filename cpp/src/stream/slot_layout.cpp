#include "lynx/slot_layout.hpp"

#include <algorithm>

namespace lynx {

namespace {

// Keeps tensors on cache-line and DMA-friendly boundaries; part of the wire format.
constexpr std::size_t kTensorAlignment = 256;

constexpr std::size_t align(std::size_t n) {
    return (n + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

constexpr std::uint64_t key(std::uint32_t layer, TensorRole role) {
    return std::uint64_t{layer} << 8 | static_cast<std::uint8_t>(role);
}

}  // namespace

SlotLayout::SlotLayout(const Manifest& manifest) : chunk_bytes_(manifest.chunk_bytes), parts_(manifest.parts) {
    manifest.validate();
    for (const ManifestTensor& t : manifest.tensors) {
        const auto index = static_cast<std::uint32_t>(layouts_.size());
        layouts_.emplace_back(t.spec);
        offsets_.push_back(bytes_);
        by_layer_.emplace_back(key(t.layer, t.role), index);
        bytes_ += align(layouts_.back().bytes());
        for (unsigned p = 0; p < parts_; ++p) total_chunks_ += chunks(index, p);
    }
    std::sort(by_layer_.begin(), by_layer_.end());
}

Extent SlotLayout::extent(std::uint32_t tensor) const {
    return {offsets_.at(tensor), layouts_[tensor].bytes()};
}

Extent SlotLayout::part(std::uint32_t tensor, unsigned part) const {
    const PlaneLayout& layout = layouts_.at(tensor);
    if (part >= layout.parts()) return {offsets_[tensor] + layout.bytes(), 0};
    const Extent e = layout.part(part);
    return {offsets_[tensor] + e.offset, e.bytes};
}

std::uint32_t SlotLayout::chunks(std::uint32_t tensor, unsigned part_index) const {
    return static_cast<std::uint32_t>((part(tensor, part_index).bytes + chunk_bytes_ - 1) / chunk_bytes_);
}

Extent SlotLayout::chunk(std::uint32_t tensor, unsigned part_index, std::uint32_t index) const {
    const Extent whole = part(tensor, part_index);
    const std::size_t begin = std::size_t{index} * chunk_bytes_;
    return {whole.offset + begin, std::min<std::size_t>(chunk_bytes_, whole.bytes - begin)};
}

std::uint64_t SlotLayout::part_bytes(unsigned part_index) const {
    std::uint64_t sum = 0;
    for (std::uint32_t t = 0; t < tensors(); ++t) sum += part(t, part_index).bytes;
    return sum;
}

std::optional<std::uint32_t> SlotLayout::find(std::uint32_t layer, TensorRole role) const noexcept {
    const auto it = std::lower_bound(by_layer_.begin(), by_layer_.end(), std::pair{key(layer, role), 0u});
    if (it == by_layer_.end() || it->first != key(layer, role)) return std::nullopt;
    return it->second;
}

}  // namespace lynx
