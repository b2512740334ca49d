// Whether this build can use CUDA devices.
#pragma once

#include <string_view>

#include "lynx/export.hpp"

namespace lynx {

/// "not built", or the toolkit and the architectures it was built for.
[[nodiscard]] LYNX_API std::string_view cuda_description() noexcept;

}  // namespace lynx
