// Bits of a group of the exact tier, up to 64 at a time, for kernels with BMI2. Always inlined: see cpp/CMakeLists.txt.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lynx::codec {

/// Appends bits, the least significant first, and writes whole 64-bit words. Touches up to 8 bytes behind them.
class WordWriter {
   public:
    [[gnu::always_inline]] explicit WordWriter(std::byte* to) noexcept : begin_(to), to_(to) {}

    /// The bits of `bits` where `mask` has ones, closed up.
    [[gnu::always_inline]] void put_masked(std::uint64_t bits, std::uint64_t mask) noexcept {
        put(_pext_u64(bits, mask), static_cast<unsigned>(_mm_popcnt_u64(mask)));
    }

    /// `count` bits, 0-64; those of `bits` above are zero. Without a branch: whether a word fills is chance.
    [[gnu::always_inline]] void put(std::uint64_t bits, unsigned count) noexcept {
        word_ |= bits << used_;
        std::memcpy(to_, &word_, sizeof word_);
        const std::uint64_t carried = bits >> 1 >> (63 - used_);
        used_ += count;
        std::uint64_t full = used_ / 64;
        asm("" : "+r"(full));  // or g++ sees that it is 0 or 1, and branches
        to_ += 8 * full;
        word_ = (word_ & (full - 1)) | (carried & (0 - full));
        used_ %= 64;
    }

    /// Whole words so far.
    [[nodiscard, gnu::always_inline]] std::size_t bytes() const noexcept {
        return static_cast<std::size_t>(to_ - begin_);
    }
    /// The same with the last word, filled up by zeros.
    [[nodiscard, gnu::always_inline]] std::size_t finish() noexcept {
        std::memcpy(to_, &word_, sizeof word_);
        return bytes() + (used_ != 0 ? 8 : 0);
    }

   private:
    std::byte* begin_;
    std::byte* to_;
    std::uint64_t word_ = 0;
    unsigned used_ = 0;
};

/// Reads them; up to 9 bytes from where it stands on.
class WordReader {
   public:
    [[gnu::always_inline]] explicit WordReader(const std::byte* from) noexcept : from_(from) {}

    /// As many bits as `mask` has ones, spread to where they are.
    [[nodiscard, gnu::always_inline]] std::uint64_t get_masked(std::uint64_t mask) noexcept {
        const std::uint64_t bits = _pdep_u64(peek(), mask);
        skip(static_cast<unsigned>(_mm_popcnt_u64(mask)));
        return bits;
    }
    /// 64 bits, `ahead` bits from where it stands.
    [[nodiscard, gnu::always_inline]] std::uint64_t peek(std::size_t ahead = 0) const noexcept {
        const std::size_t at = at_ + ahead;
        std::uint64_t word;
        std::memcpy(&word, from_ + at / 8, sizeof word);
        const auto next = static_cast<std::uint64_t>(from_[at / 8 + 8]);
        return word >> (at % 8) | next << 1 << (~(at % 8) % 64);
    }
    [[gnu::always_inline]] void skip(std::size_t bits) noexcept { at_ += bits; }
    [[nodiscard, gnu::always_inline]] std::size_t bits() const noexcept { return at_; }

    /// Do the bits read so far end in the last 8 of `bytes` bytes, with zeros behind them?
    [[nodiscard, gnu::always_inline]] bool ends_in(std::size_t bytes) const noexcept {
        const std::size_t filling = 8 * bytes - at_;
        return filling < 64 && (filling == 0 || peek() << (64 - filling) == 0);
    }

   private:
    const std::byte* from_;
    std::size_t at_ = 0;
};

}  // namespace lynx::codec
