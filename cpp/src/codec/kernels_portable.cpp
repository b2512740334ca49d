// The instruction sets of a build for a CPU that no file here is written for.
#include "codec/kernels.hpp"

namespace lynx::codec {

std::span<const Kernels* const> built_kernels() noexcept {
    static constexpr const Kernels* kBuilt[] = {&kScalarKernels};
    return kBuilt;
}

}  // namespace lynx::codec
