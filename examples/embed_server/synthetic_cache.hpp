// The stand-in for a model: a KV cache whose every value follows from where it stands, so that the receiver can make
// the same one and compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lynx/manifest.hpp"
#include "lynx/tensor_view.hpp"

inline constexpr std::uint32_t kMostLayers = lynx::kMaxTensors / 2;

struct CacheShape {
    std::uint32_t layers = 8;
    std::uint32_t tokens = 1024;
    std::uint32_t heads = 4;
    std::uint32_t head_dim = 64;
};

/// The K or V tensor of one layer, bf16, in the order many servers keep it: [tokens, heads, head_dim].
class CacheTensor {
   public:
    explicit CacheTensor(const CacheShape& shape);

    /// Lynx reads and writes [heads, tokens, head_dim] of any strides: the server's own order is only another view.
    [[nodiscard]] lynx::TensorView view() const;
    [[nodiscard]] lynx::MutableTensorView mutable_view();

    /// What the model would compute: about normal, with a standard deviation of 1.
    void compute(std::uint32_t layer, lynx::TensorRole role);
    /// The largest distance from what compute() gives.
    [[nodiscard]] float max_error(std::uint32_t layer, lynx::TensorRole role) const;

   private:
    CacheShape shape_;
    std::vector<std::uint16_t> values_;
};

/// Describes the whole cache: what a prefill node offers before it has computed any of it.
[[nodiscard]] lynx::Manifest make_manifest(const CacheShape& shape, std::uint64_t request_id);
/// The way back. Throws lynx::InvalidArgument for a manifest that make_manifest would not have made.
[[nodiscard]] CacheShape shape_of(const lynx::Manifest& manifest);
