// The fuzzer's bytes, read as choices. What is asked for when they have run out is zero, or pseudo-random where there
// has to be something to decode: short inputs are as good as long ones, and the same input always does the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "lynx/buffer.hpp"

namespace lynx::fuzz {

/// What a target throws when the code under test does what it must not. (Nobody catches it: libFuzzer keeps the input.)
struct Finding : std::logic_error {
    using std::logic_error::logic_error;
};

inline void require(bool holds, const std::string& what) {
    if (!holds) throw Finding(what);
}

class Input {
   public:
    explicit Input(ConstByteSpan bytes) noexcept : rest_(bytes) {
        for (const std::byte b : bytes) state_ = (state_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
    }

    template <class T = std::uint8_t>
    [[nodiscard]] T take() noexcept {
        static_assert(std::is_integral_v<T>);
        T value{};
        const std::size_t taken = std::min(sizeof value, rest_.size());
        if (taken != 0) std::memcpy(&value, rest_.data(), taken);
        rest_ = rest_.subspan(taken);
        return value;
    }
    /// least to most, both included; from one byte if that is enough.
    [[nodiscard]] std::uint32_t between(std::uint32_t least, std::uint32_t most) noexcept {
        const std::uint64_t choices = std::uint64_t{most} - least + 1;
        const std::uint32_t value = choices <= 256 ? take() : take<std::uint32_t>();
        return least + static_cast<std::uint32_t>(value % choices);
    }
    [[nodiscard]] bool one_in(std::uint32_t n) noexcept { return between(1, n) == n; }
    template <class T, std::size_t kCount>
    [[nodiscard]] T one_of(const T (&choices)[kCount]) noexcept {
        return choices[between(0, kCount - 1)];
    }

    [[nodiscard]] std::uint64_t random() noexcept {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_;
    }
    /// Takes up to `most` bytes of what is left; the others are pseudo-random.
    void fill(ByteSpan to, std::size_t most = SIZE_MAX) noexcept {
        const std::size_t taken = std::min({to.size(), rest_.size(), most});
        if (taken != 0) std::memcpy(to.data(), rest_.data(), taken);
        rest_ = rest_.subspan(taken);
        for (std::size_t i = taken; i < to.size(); i += 8) {
            const std::uint64_t word = random();
            std::memcpy(to.data() + i, &word, std::min<std::size_t>(8, to.size() - i));
        }
    }

    [[nodiscard]] ConstByteSpan rest() const noexcept { return rest_; }

   private:
    ConstByteSpan rest_;
    std::uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace lynx::fuzz
