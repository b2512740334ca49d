// Built where no CUDA compiler is used: says so.
#include "lynx/cuda.hpp"

namespace lynx {

std::string_view cuda_description() noexcept {
    return "not built";
}

}  // namespace lynx
