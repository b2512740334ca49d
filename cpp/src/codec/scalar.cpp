// The reference kernels: plain C++, any CPU. Loops are shaped so that a compiler vectorizes them for the
// baseline instruction set; nothing here names one.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "codec/bit_planes.hpp"
#include "codec/convert.hpp"
#include "codec/kernels.hpp"
#include "codec/quantization.hpp"
#include "codec/rotation.hpp"

namespace lynx::codec {
namespace {

// Vectors are coded in batches of up to this many coordinates: long enough for the plane loops, short enough
// for the first-level cache.
constexpr std::size_t kBatchCodes = 2048;
static_assert(kBatchCodes >= kMaxHeadDim);

using Scratch = CodeScratch<kBatchCodes>;

// ---- Rotation, forward -----------------------------------------------------------------------------------

// One butterfly stage in constant geometry: pairs are neighbours, sums go to the lower half and differences
// to the upper. Each stage so rotates the index bits by one; the stages come out as h = 1, 2, 4, ... and the
// last one leaves the natural order. The same loop serves each stage, and it vectorizes.
template <std::size_t kBlock, bool kLast>
void forward_stage(const float* __restrict in, float* __restrict out) noexcept {
    constexpr float kFactor = forward_factor(log2_block(kBlock));
    for (std::size_t i = 0; i < kBlock / 2; ++i) {
        const float a = in[2 * i];
        const float b = in[2 * i + 1];
        out[i] = kLast ? (a + b) * kFactor : a + b;
        out[i + kBlock / 2] = kLast ? (a - b) * kFactor : a - b;
    }
}

// y = H x, block by block; x is overwritten.
template <std::size_t kBlock>
void rotate(float* x, std::size_t head_dim, float* y) noexcept {
    alignas(64) float scratch[kBlock];
    for (std::size_t start = 0; start < head_dim; start += kBlock) {
        float* in = x + start;
        float* out = scratch;
        for (std::size_t h = 1; h < kBlock / 2; h *= 2) {
            forward_stage<kBlock, false>(in, out);
            std::swap(in, out);
        }
        forward_stage<kBlock, true>(in, y + start);
    }
}

// ---- Rotation, inverse -----------------------------------------------------------------------------------

// 255 * 128 fits int16, so that up to this block the butterfly runs in half the registers.
constexpr std::size_t kNarrowBlock = 128;

// The mirror of forward_stage: halves in, interleaved out. On integers the order of stages is free.
template <std::size_t kBlock, class In>
void inverse_stage(const In* __restrict in, std::int16_t* __restrict out) noexcept {
    for (std::size_t i = 0; i < kBlock / 2; ++i) {
        const int a = in[i];
        const int b = in[i + kBlock / 2];
        out[2 * i] = static_cast<std::int16_t>(a + b);
        out[2 * i + 1] = static_cast<std::int16_t>(a - b);
    }
}

template <std::size_t kBlock>
void inverse_narrow(const std::uint8_t* codes, std::int16_t* out) noexcept {
    alignas(64) std::int16_t scratch[kBlock];
    std::int16_t* to = std::countr_zero(kBlock) % 2 == 1 ? out : scratch;
    std::int16_t* other = to == out ? scratch : out;
    inverse_stage<kBlock>(codes, to);
    for (std::size_t h = 2; h < kBlock; h *= 2) {
        inverse_stage<kBlock>(to, other);
        std::swap(to, other);
    }
}

// x = what the codes' prefixes stand for.
template <std::size_t kBlock>
void unrotate(const std::uint8_t* codes, std::size_t head_dim, Reconstruction r, float* x) noexcept {
    constexpr std::size_t kNarrow = std::min(kBlock, kNarrowBlock);
    for (std::size_t start = 0; start < head_dim; start += kBlock) {
        alignas(64) std::int16_t narrow[kBlock];
        for (std::size_t part = 0; part < kBlock; part += kNarrow)
            inverse_narrow<kNarrow>(codes + start + part, narrow + part);
        float* to = x + start;
        if constexpr (kBlock == kNarrow) {
            for (std::size_t i = 0; i < kBlock; ++i) to[i] = r.factor * static_cast<float>(narrow[i]);
        } else {
            alignas(64) std::int32_t wide[kBlock];
            std::copy_n(narrow, kBlock, wide);
            for (std::size_t h = kNarrow; h < kBlock; h *= 2) {
                for (std::size_t pair = 0; pair < kBlock; pair += 2 * h) {
                    std::int32_t* __restrict low = wide + pair;
                    std::int32_t* __restrict high = wide + pair + h;
                    for (std::size_t i = 0; i < h; ++i) {
                        const std::int32_t a = low[i];
                        const std::int32_t b = high[i];
                        low[i] = a + b;
                        high[i] = a - b;
                    }
                }
            }
            for (std::size_t i = 0; i < kBlock; ++i) to[i] = r.factor * static_cast<float>(wide[i]);
        }
        to[0] += r.bias;
    }
}

using RotateFn = void (*)(float*, std::size_t, float*) noexcept;
using UnrotateFn = void (*)(const std::uint8_t*, std::size_t, Reconstruction, float*) noexcept;

// By log2 of the block, 3-10, modulo their number.
constexpr RotateFn kRotate[] = {rotate<256>, rotate<512>, rotate<1024>, rotate<8>,
                                rotate<16>,  rotate<32>,  rotate<64>,   rotate<128>};
constexpr UnrotateFn kUnrotate[] = {unrotate<256>, unrotate<512>, unrotate<1024>, unrotate<8>,
                                    unrotate<16>,  unrotate<32>,  unrotate<64>,   unrotate<128>};

// ---- Quantization ----------------------------------------------------------------------------------------

[[nodiscard]] Range range_of(const float* __restrict y, std::size_t count) noexcept {
    Range range;
    for (std::size_t i = 0; i < count; ++i) range.include(y[i]);
    return range;
}

void quantize(const float* __restrict y, std::size_t count, float zero, float inverse_scale,
              std::uint8_t* __restrict codes) noexcept {
    for (std::size_t i = 0; i < count; ++i) codes[i] = code_of(y[i], zero, inverse_scale);
}

// ---- Whole vectors ---------------------------------------------------------------------------------------

template <DType kType>
std::size_t encode(const EncodeJob& job) noexcept {
    const std::size_t head_dim = job.head_dim;
    const std::size_t row_bytes = head_dim / 8;
    const RotateFn rotate_blocks = kRotate[log2_block(job.head_dim) % 8];
    alignas(64) float x[kMaxHeadDim];
    alignas(64) float y[kMaxHeadDim];
    Scratch scratch;
    std::size_t nonfinite = 0;
    const std::byte* src = job.src;
    for (std::size_t done = 0; done < job.vectors;) {
        const std::size_t batch = std::min(kBatchCodes / head_dim, job.vectors - done);
        for (std::size_t v = 0; v < batch; ++v) {
            load_floats<kType>(src + static_cast<std::ptrdiff_t>(done + v) * job.src_step, head_dim, x);
            rotate_blocks(x, head_dim, y);
            const Range range = range_of(y, head_dim);
            const ScaleZero sz = range.finite() ? scale_zero_of(range) : ScaleZero{};
            nonfinite += range.finite() ? 0 : 1;
            std::uint8_t* codes = scratch.a + v * head_dim;
            if (sz.scale != 0)
                quantize(y, head_dim, f16_to_f32(sz.zero), 1.0f / f16_to_f32(sz.scale), codes);
            else
                std::memset(codes, 0, head_dim);
            store(job.scales + 2 * (done + v), sz.scale);
            store(job.zeros + 2 * (done + v), sz.zero);
        }
        split_planes(scratch, batch * row_bytes, job.planes + done * row_bytes, job.plane_step);
        done += batch;
    }
    return nonfinite;
}

template <DType kType>
void decode(const DecodeJob& job) noexcept {
    const std::size_t head_dim = job.head_dim;
    const std::size_t row_bytes = head_dim / 8;
    const unsigned log2_b = log2_block(job.head_dim);
    const UnrotateFn unrotate_blocks = kUnrotate[log2_b % 8];
    alignas(64) float x[kMaxHeadDim];
    Scratch scratch;
    for (std::size_t done = 0; done < job.vectors;) {
        const std::size_t batch = std::min(kBatchCodes / head_dim, job.vectors - done);
        merge_planes(job.planes + done * row_bytes, job.plane_step, job.plane_count, batch * row_bytes, scratch);
        for (std::size_t v = 0; v < batch; ++v) {
            const float scale = f16_to_f32(load<std::uint16_t>(job.scales + 2 * (done + v)));
            const float zero = f16_to_f32(load<std::uint16_t>(job.zeros + 2 * (done + v)));
            const Reconstruction r = reconstruction(scale, zero, kPlaneCount - job.plane_count, log2_b);
            unrotate_blocks(scratch.a + v * head_dim, head_dim, r, x);
            store_floats<kType>(x, head_dim, job.dst + static_cast<std::ptrdiff_t>(done + v) * job.dst_step);
        }
        done += batch;
    }
}

bool supported() noexcept {
    return true;
}

}  // namespace

const Kernels kScalarKernels{
    .name = "scalar",
    .supported = supported,
    .encode = {encode<DType::kBF16>, encode<DType::kF16>, encode<DType::kF32>},
    .decode = {decode<DType::kBF16>, decode<DType::kF16>, decode<DType::kF32>},
    .encode_exact = {encode_exact_scalar<DType::kBF16>, encode_exact_scalar<DType::kF16>},
    .decode_exact = {decode_exact_scalar<DType::kBF16>, decode_exact_scalar<DType::kF16>},
};

}  // namespace lynx::codec
