// The AVX-512 kernels: of CPUs with VBMI, GFNI, VNNI and BF16 (Zen 4 and later, Sapphire Rapids and later).
#include "codec/avx512.hpp"
#include "codec/cpu_x86.hpp"

namespace lynx::codec {
namespace {

// Every instruction set that CMakeLists.txt lets the compiler use in these files; this also asks whether the
// operating system keeps the registers.
bool supported() noexcept {
    return __builtin_cpu_supports("avx2") && cpu_has_f16c_and_lzcnt() && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("gfni");
}

}  // namespace

const Kernels kAvx512Kernels{
    .name = "avx512",
    .supported = supported,
    .encode = {avx512::encode_bf16, avx512::encode_f16, avx512::encode_f32},
    .decode = {avx512::decode_bf16, avx512::decode_f16, avx512::decode_f32},
    .encode_exact = {encode_exact_avx512<DType::kBF16>, encode_exact_avx512<DType::kF16>},
    .decode_exact = {decode_exact_avx512<DType::kBF16>, decode_exact_avx512<DType::kF16>},
};

}  // namespace lynx::codec
