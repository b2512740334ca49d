#include "synthetic_cache.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "lynx/error.hpp"

namespace {

constexpr const char* kModel = "embed_server synthetic cache 1";

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a good hash of a counter.
std::uint64_t hash(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Four uniform numbers add up to a bell, near enough to normal for a cache. bf16 is the upper half of an fp32.
std::uint16_t value_at(std::uint64_t seed, std::size_t index) {
    const std::uint64_t bits = hash(seed + index);
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>((bits >> (16 * i)) & 0xffffu) / 65536.0f - 0.5f;
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(sum * std::sqrt(3.0f)) >> 16);
}

float to_float(std::uint16_t bf16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

std::uint64_t seed_of(std::uint32_t layer, lynx::TensorRole role) {
    return hash(std::uint64_t{layer} * 2 + static_cast<std::uint64_t>(role));
}

template <class View, class Byte>
View view_of(const CacheShape& shape, Byte* data) {
    const std::int64_t heads = shape.heads;
    const std::int64_t head_dim = shape.head_dim;
    return {.data = data,
            .dtype = lynx::DType::kBF16,
            .shape = {heads, shape.tokens, head_dim},
            .strides = {head_dim, heads * head_dim, 1}};
}

}  // namespace

CacheTensor::CacheTensor(const CacheShape& shape)
    : shape_(shape), values_(std::size_t{shape.tokens} * shape.heads * shape.head_dim) {}

lynx::TensorView CacheTensor::view() const {
    return view_of<lynx::TensorView>(shape_, std::as_bytes(std::span(values_)).data());
}

lynx::MutableTensorView CacheTensor::mutable_view() {
    return view_of<lynx::MutableTensorView>(shape_, std::as_writable_bytes(std::span(values_)).data());
}

void CacheTensor::compute(std::uint32_t layer, lynx::TensorRole role) {
    const std::uint64_t seed = seed_of(layer, role);
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = value_at(seed, i);
}

float CacheTensor::max_error(std::uint32_t layer, lynx::TensorRole role) const {
    const std::uint64_t seed = seed_of(layer, role);
    float most = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
        const float error = std::abs(to_float(values_[i]) - to_float(value_at(seed, i)));
        if (!(error <= most)) most = error;  // so written, a NaN counts as an error and stays
        if (std::isnan(most)) break;
    }
    return most;
}

lynx::Manifest make_manifest(const CacheShape& shape, std::uint64_t request_id) {
    lynx::Manifest manifest;
    manifest.request_id = request_id;
    manifest.model = kModel;
    manifest.context_tokens = shape.tokens;
    const lynx::TensorSpec key{.dtype = lynx::DType::kBF16,
                               .heads = shape.heads,
                               .tokens = shape.tokens,
                               .head_dim = shape.head_dim,
                               .anchor_bits = lynx::kDefaultKeyAnchorBits,
                               .sink_tokens = lynx::kDefaultSinkTokens};
    lynx::TensorSpec value = key;
    value.anchor_bits = lynx::kDefaultValueAnchorBits;
    // In sending order. Residuals arrive in this order too, so that a verifying pass can start at layer 0.
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
        manifest.tensors.push_back({.layer = layer, .role = lynx::TensorRole::kKey, .spec = key});
        manifest.tensors.push_back({.layer = layer, .role = lynx::TensorRole::kValue, .spec = value});
    }
    return manifest;
}

CacheShape shape_of(const lynx::Manifest& manifest) {
    CacheShape shape{.layers = static_cast<std::uint32_t>(manifest.tensors.size() / 2)};
    if (!manifest.tensors.empty()) {
        const lynx::TensorSpec& spec = manifest.tensors.front().spec;
        shape.tokens = spec.tokens;
        shape.heads = spec.heads;
        shape.head_dim = spec.head_dim;
    }
    lynx::Manifest known = make_manifest(shape, manifest.request_id);
    known.chunk_bytes = manifest.chunk_bytes;  // the sender's choice
    if (manifest != known)
        throw lynx::InvalidArgument("a cache of \"" + manifest.model + "\" was offered; this program takes \"" +
                                    kModel + "\" alone: run the same embed_server on both sides");
    return shape;
}
