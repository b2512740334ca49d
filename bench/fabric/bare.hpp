// The end that is bare libfabric.
#pragma once

#include <memory>
#include <string>

#include "end.hpp"

namespace lynx::bench {

/// `memory_bytes`: the most that a goodput run moves.
[[nodiscard]] std::unique_ptr<End> bare_end(bool sends, const std::string& provider, const std::string& host,
                                            std::size_t memory_bytes);

}  // namespace lynx::bench
