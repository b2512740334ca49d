// Text for messages: concatenates anything that an ostream takes. (std::format is not in g++ 12.)
#pragma once

#include <sstream>
#include <string>

namespace lynx {

template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return std::move(out).str();
}

}  // namespace lynx
