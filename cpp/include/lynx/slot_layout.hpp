// Where each tensor of a manifest lies in a slot, and in how many writes each of its parts travels. Derived by
// both ends from the manifest alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lynx/export.hpp"
#include "lynx/manifest.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx {

class LYNX_API SlotLayout {
   public:
    /// Validates the manifest: throws InvalidArgument as Manifest::validate does.
    explicit SlotLayout(const Manifest& manifest);

    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::uint32_t tensors() const noexcept { return static_cast<std::uint32_t>(layouts_.size()); }
    [[nodiscard]] unsigned parts() const noexcept { return parts_; }
    [[nodiscard]] const PlaneLayout& tensor(std::uint32_t index) const { return layouts_.at(index); }
    /// The coded tensor's place in the slot.
    [[nodiscard]] Extent extent(std::uint32_t tensor) const;
    /// One part's place in the slot; empty for a part that this tensor lacks.
    [[nodiscard]] Extent part(std::uint32_t tensor, unsigned part) const;
    /// The writes that a part travels in.
    [[nodiscard]] std::uint32_t chunks(std::uint32_t tensor, unsigned part) const;
    [[nodiscard]] Extent chunk(std::uint32_t tensor, unsigned part, std::uint32_t index) const;
    [[nodiscard]] std::uint64_t total_chunks() const noexcept { return total_chunks_; }
    /// Payload bytes of one part over all tensors.
    [[nodiscard]] std::uint64_t part_bytes(unsigned part) const;

    [[nodiscard]] std::optional<std::uint32_t> find(std::uint32_t layer, TensorRole role) const noexcept;

   private:
    std::vector<PlaneLayout> layouts_;
    std::vector<std::size_t> offsets_;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> by_layer_;  // sorted (layer, role) -> index
    std::uint32_t chunk_bytes_;
    unsigned parts_;
    std::size_t bytes_ = 0;
    std::uint64_t total_chunks_ = 0;
};

}  // namespace lynx
