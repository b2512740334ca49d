// Inlined from its header, so that nothing has to be linked; the shared library of Debian is a third slower.
#define XXH_INLINE_ALL
#include "core/checksum.hpp"

#include <xxhash.h>

namespace lynx {

std::uint64_t checksum(ConstByteSpan bytes, std::uint64_t seed) noexcept {
    return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace lynx
