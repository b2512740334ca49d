// The memory that all benchmarks work on. It is taken once, as large as the largest case, and touched before
// anything is timed, so that no case pays for page faults or for where its arrays happen to lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lynx/buffer.hpp"
#include "lynx/codec.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::bench {

/// KV heads of every tensor here; the tokens follow from the size.
inline constexpr std::uint32_t kHeads = 8;

/// A contiguous tensor of `source_bytes`.
[[nodiscard]] TensorSpec spec_of(DType dtype, std::uint32_t head_dim, std::size_t source_bytes);

/// One thread's: not to be shared.
class Arrays {
   public:
    /// For sources of up to `source_bytes`, a multiple of 1 MiB. Throws ArenaFull where memory lacks.
    explicit Arrays(std::size_t source_bytes);

    /// The source of that layout, filled with values like a KV cache's; the same for every head_dim.
    [[nodiscard]] TensorView source(const PlaneLayout& layout);
    /// Where to decode to, in the layout's dtype.
    [[nodiscard]] MutableTensorView destination(const PlaneLayout& layout) noexcept;
    /// The bytes of the coded tensor, whatever they hold.
    [[nodiscard]] ByteSpan coded(const PlaneLayout& layout) noexcept;
    /// The same after source() has been coded into them by the fastest codec, with the exact tier if the layout has
    /// one; done again only for another layout.
    /// They are to be read only; what is not const is the type, which Call shares with those that write.
    [[nodiscard]] ByteSpan coded_source(const PlaneLayout& layout);

   private:
    void fill(DType dtype);

    Buffer source_;
    Buffer destination_;
    Buffer coded_;
    std::optional<DType> filled_with_;
    std::optional<TensorSpec> coded_spec_;  ///< of what coded_ holds
};

}  // namespace lynx::bench
