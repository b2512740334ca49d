#include "arrays.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace lynx::bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTileValues = kMiB;  // Repeated over the source: drawing a GiB would take a minute.
constexpr std::size_t kChannels = 64;

std::array<std::int64_t, 3> strides_of(const TensorSpec& spec) {
    return {std::int64_t{spec.tokens} * spec.head_dim, spec.head_dim, 1};
}

std::array<std::int64_t, 3> shape_of(const TensorSpec& spec) {
    return {spec.heads, spec.tokens, spec.head_dim};
}

/// Normal values, each channel with a spread of its own and two channels above the others, as in K: the exact tier
/// takes about as many bits of them as of SmolLM2's cache, and its speed depends on that.
std::vector<float> draw_tile() {
    std::mt19937 random(2026);
    std::normal_distribution<float> normal;
    std::array<float, kChannels> spread;
    for (float& s : spread) s = std::exp(0.3f * normal(random));
    spread[5] *= 4;
    spread[37] *= 4;
    std::vector<float> tile(kTileValues);
    for (std::size_t i = 0; i < tile.size(); ++i) tile[i] = spread[i % kChannels] * normal(random);
    return tile;
}

std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

std::vector<std::byte> tile_as(DType dtype) {
    const std::vector<float> values = draw_tile();
    std::vector<std::byte> bytes(values.size() * size_of(dtype));
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::byte* at = bytes.data() + i * size_of(dtype);
        if (dtype == DType::kF32) {
            std::memcpy(at, &values[i], 4);
        } else if (dtype == DType::kF16) {
            const auto half = static_cast<_Float16>(values[i]);
            std::memcpy(at, &half, 2);
        } else {
            const std::uint16_t half = to_bf16(values[i]);
            std::memcpy(at, &half, 2);
        }
    }
    return bytes;
}

/// Of the coded form of any source of that size: 16 bits a value and the smallest head_dim make the most vectors.
std::size_t largest_coded(std::size_t source_bytes) {
    TensorSpec spec = spec_of(DType::kBF16, kChannels, source_bytes);
    spec.exact = true;
    return PlaneLayout(spec).bytes();
}

}  // namespace

TensorSpec spec_of(DType dtype, std::uint32_t head_dim, std::size_t source_bytes) {
    TensorSpec spec;
    spec.dtype = dtype;
    spec.heads = kHeads;
    spec.tokens = static_cast<std::uint32_t>(source_bytes / (std::size_t{kHeads} * head_dim * size_of(dtype)));
    spec.head_dim = head_dim;
    return spec;
}

Arrays::Arrays(std::size_t source_bytes)
    : source_(source_bytes), destination_(source_bytes), coded_(largest_coded(source_bytes)) {
    std::ranges::fill(destination_.span(), std::byte{1});
    std::ranges::fill(coded_.span(), std::byte{1});
}

void Arrays::fill(DType dtype) {
    if (filled_with_ == dtype) return;
    const std::vector<std::byte> tile = tile_as(dtype);
    for (std::size_t at = 0; at < source_.size(); at += tile.size())
        std::memcpy(source_.span().data() + at, tile.data(), std::min(tile.size(), source_.size() - at));
    filled_with_ = dtype;
    coded_spec_.reset();
}

TensorView Arrays::source(const PlaneLayout& layout) {
    const TensorSpec& spec = layout.spec();
    fill(spec.dtype);
    return {source_.span().data(), spec.dtype, shape_of(spec), strides_of(spec)};
}

MutableTensorView Arrays::destination(const PlaneLayout& layout) noexcept {
    const TensorSpec& spec = layout.spec();
    return {destination_.span().data(), spec.dtype, shape_of(spec), strides_of(spec)};
}

ByteSpan Arrays::coded(const PlaneLayout& layout) noexcept {
    coded_spec_.reset();  // The caller may write to them.
    return coded_.span().first(layout.bytes());
}

ByteSpan Arrays::coded_source(const PlaneLayout& layout) {
    const TensorView view = source(layout);
    if (coded_spec_ != layout.spec()) {
        const Codec& codec = Codec::best();
        codec.encode(view, layout, coded(layout));
        if (layout.has_exact()) codec.encode_exact(view, layout, coded(layout));
        coded_spec_ = layout.spec();
    }
    return coded_.span().first(layout.bytes());
}

}  // namespace lynx::bench
