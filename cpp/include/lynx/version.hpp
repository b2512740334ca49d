// Which Lynx this is, for logs, bug reports and `lynx info`.
#pragma once

#include <string_view>

#include "lynx/export.hpp"

namespace lynx {

/// "0.1.0": of the library that is loaded, which may be another than the one compiled against.
[[nodiscard]] LYNX_API std::string_view version() noexcept;

/// How that library was built, e.g. "Release, g++ 12.2.0"; sanitizers are named if there are any.
[[nodiscard]] LYNX_API std::string_view build_description() noexcept;

}  // namespace lynx
