// The kernels for x86-64 CPUs with AVX2, FMA and F16C. This file is compiled for them.
#include "codec/avx2_decode.hpp"
#include "codec/avx2_encode.hpp"
#include "codec/cpu_x86.hpp"
#include "codec/kernels.hpp"

namespace lynx::codec {
namespace {

bool supported() noexcept {
    // All that the build lets the compiler use here, and not only what it is sure to.
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c_and_lzcnt() &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

}  // namespace

const Kernels kAvx2Kernels{
    .name = "avx2",
    .supported = supported,
    .encode = {encode<DType::kBF16>, encode<DType::kF16>, encode<DType::kF32>},
    .decode = {decode<DType::kBF16>, decode<DType::kF16>, decode<DType::kF32>},
    .encode_exact = {encode_exact_avx2<DType::kBF16>, encode_exact_avx2<DType::kF16>},
    .decode_exact = {decode_exact_avx2<DType::kBF16>, decode_exact_avx2<DType::kF16>},
};

}  // namespace lynx::codec
