// XXH3 of 64 bits (https://xxhash.com): finds damage by accident, not by intent.
#pragma once

#include <cstdint>

#include "lynx/buffer.hpp"

namespace lynx {

[[nodiscard]] std::uint64_t checksum(ConstByteSpan bytes, std::uint64_t seed) noexcept;

}  // namespace lynx
