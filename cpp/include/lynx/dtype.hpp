// Element types of a KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lynx {

/// The values are part of the wire format: never renumber.
enum class DType : std::uint8_t { kBF16 = 0, kF16 = 1, kF32 = 2 };

[[nodiscard]] constexpr bool is_valid(DType t) noexcept {
    return t <= DType::kF32;
}

[[nodiscard]] constexpr std::size_t size_of(DType t) noexcept {
    return t == DType::kF32 ? 4 : 2;
}

[[nodiscard]] constexpr std::string_view name_of(DType t) noexcept {
    switch (t) {
        case DType::kBF16: return "bf16";
        case DType::kF16: return "fp16";
        case DType::kF32: return "fp32";
    }
    return "invalid";
}

}  // namespace lynx
