// Bytes that are wiped when they go.
#pragma once

#include <sodium.h>

#include <array>
#include <cstddef>

namespace lynx::fabric {

template <std::size_t kBytes>
class Secret {
   public:
    Secret() noexcept = default;
    Secret(const Secret&) = delete;
    Secret& operator=(const Secret&) = delete;
    ~Secret() { sodium_memzero(bytes_.data(), bytes_.size()); }

    [[nodiscard]] unsigned char* data() noexcept { return bytes_.data(); }
    [[nodiscard]] const unsigned char* data() const noexcept { return bytes_.data(); }
    [[nodiscard]] static constexpr std::size_t size() noexcept { return kBytes; }

   private:
    std::array<unsigned char, kBytes> bytes_{};
};

}  // namespace lynx::fabric
