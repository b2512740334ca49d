// The instruction sets of an x86-64 build.
#include "codec/kernels.hpp"

namespace lynx::codec {

std::span<const Kernels* const> built_kernels() noexcept {
    static constexpr const Kernels* kBuilt[] = {&kAvx512Kernels, &kAvx2Kernels, &kScalarKernels};
    return kBuilt;
}

}  // namespace lynx::codec
