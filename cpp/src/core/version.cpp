#include "lynx/version.hpp"

// LYNX_VERSION, LYNX_BUILD_TYPE and LYNX_SANITIZERS come from CMake and reach this file alone, so that a
// new version recompiles one file.
#if defined(__clang__)
#define LYNX_COMPILER "clang++ " __clang_version__
#else
#define LYNX_COMPILER "g++ " __VERSION__
#endif

namespace lynx {

std::string_view version() noexcept {
    return LYNX_VERSION;
}

std::string_view build_description() noexcept {
    return LYNX_BUILD_TYPE ", " LYNX_COMPILER LYNX_SANITIZERS;
}

}  // namespace lynx
