// Where each tensor of a manifest lies in a slot, and in which chunks, one write each, its parts travel. Derived by
// both ends from the manifest alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lynx/export.hpp"
#include "lynx/manifest.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx {

/// Each tensor is a *head* (see stream/tensor_head.hpp) and, right behind it, the coded tensor. Part 0 is the head and
/// the anchor. A part is cut at every chunk_bytes of the coded tensor; the head travels with the tensor's first chunk.
class LYNX_API SlotLayout {
   public:
    /// Validates the manifest: throws InvalidArgument as Manifest::validate does, and if there are more chunks than
    /// can be numbered.
    explicit SlotLayout(const Manifest& manifest);

    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::uint32_t tensors() const noexcept { return static_cast<std::uint32_t>(tensors_.size()); }
    [[nodiscard]] unsigned parts() const noexcept { return parts_; }
    [[nodiscard]] unsigned rungs() const noexcept { return rungs_; }
    [[nodiscard]] unsigned exact_part() const noexcept { return rungs_ + 1; }
    /// What a part is of: 0 the anchor, 1 the residual, 2 the exact tier.
    [[nodiscard]] unsigned tier(unsigned part) const noexcept { return part == 0 ? 0 : part <= rungs_ ? 1 : 2; }
    [[nodiscard]] const PlaneLayout& tensor(std::uint32_t index) const { return tensors_.at(index).layout; }
    [[nodiscard]] bool checksums() const noexcept { return checksums_; }

    // Places in the slot.
    [[nodiscard]] Extent head(std::uint32_t tensor) const;   ///< empty if the tensor is
    [[nodiscard]] Extent coded(std::uint32_t tensor) const;  ///< the coded tensor
    /// Empty for a part that this tensor lacks or that is not sent. Of an exact tier, the most that it may take.
    [[nodiscard]] Extent part(std::uint32_t tensor, unsigned part) const;
    /// What a part of all tensors takes at most.
    [[nodiscard]] std::uint64_t part_bytes(unsigned part) const;

    /// Chunks are numbered by tensor, then part, then place.
    struct Chunk {
        std::uint32_t tensor = 0;
        unsigned part = 0;
        Extent extent;
    };
    [[nodiscard]] std::uint32_t chunks() const noexcept { return chunks_; }
    [[nodiscard]] Chunk chunk(std::uint32_t number) const;
    [[nodiscard]] std::uint32_t first_chunk(std::uint32_t tensor) const { return tensors_.at(tensor).first_chunk; }
    /// The chunks of one part; of an exact tier, as many as `exact_bytes` take.
    struct Range {
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
        [[nodiscard]] std::uint32_t count() const noexcept { return end - begin; }
    };
    [[nodiscard]] Range chunks(std::uint32_t tensor, unsigned part) const;
    [[nodiscard]] Range exact_chunks(std::uint32_t tensor, std::uint64_t exact_bytes) const;
    /// What those chunks take: `exact_bytes` and, at the end, up to 63 bytes of filling.
    [[nodiscard]] Extent exact_extent(std::uint32_t tensor, std::uint64_t exact_bytes) const;

    /// From now on the last chunk of this tensor's exact part ends where exact_extent() does. Until then chunk() gives
    /// the most that an exact part may take. Not to be called while another thread calls chunk() for this tensor.
    void trim_exact(std::uint32_t tensor, std::uint64_t exact_bytes) {
        tensors_.at(tensor).exact_bytes = exact_extent(tensor, exact_bytes).bytes;
    }

    /// The pieces (see ManifestTensor) of K or V of a layer, as indices into the manifest, by token and head;
    /// empty if there are none.
    [[nodiscard]] std::span<const std::uint32_t> pieces(std::uint32_t layer, TensorRole role) const noexcept;

   private:
    struct Tensor {
        PlaneLayout layout;
        std::size_t offset;  // of the head
        std::size_t head_bytes;
        std::uint32_t first_chunk;
        std::uint32_t part_begin[kMaxParts + 1];  // chunk numbers, from first_chunk on
        std::size_t exact_bytes;                  // what the exact part takes, as far as that is known
    };
    std::vector<Tensor> tensors_;
    std::vector<std::uint64_t> piece_keys_;  // sorted (layer, role), one for each entry of pieces_
    std::vector<std::uint32_t> pieces_;
    std::uint32_t chunk_bytes_;
    unsigned parts_;
    unsigned rungs_;
    bool checksums_;
    std::size_t bytes_ = 0;
    std::uint32_t chunks_ = 0;
};

}  // namespace lynx
