// What travels before a coded tensor, in its first chunk: what the receiver cannot derive from the manifest.
//
// u64 checksum of the rest of the first chunk; u64 bytes of the exact part that are used; then, for each further chunk
// of the tensor in order, u64 its checksum (0 for those that the exact part does not use). Little endian. Without
// checksums the first field is 0 and the list is not there. Zeros fill it up to a multiple of 64 bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/checksum.hpp"
#include "lynx/slot_layout.hpp"

namespace lynx {

class TensorHead {
   public:
    static constexpr std::size_t kWord = sizeof(std::uint64_t);
    static constexpr std::size_t kFixedBytes = 2 * kWord;

    [[nodiscard]] static constexpr std::size_t bytes(std::uint32_t chunks, bool checksums) noexcept {
        return kFixedBytes + (checksums ? (chunks - 1) * kWord : 0);
    }

    /// Writes the head of a coded tensor in `slot`. `seed` is the transfer's own: what another transfer has left in
    /// the same memory has other checksums.
    static void write(const SlotLayout& layout, std::uint32_t tensor, std::uint64_t exact_bytes, std::uint64_t seed,
                      ByteSpan slot) noexcept {
        const ByteSpan head = slot.subspan(layout.head(tensor).offset, layout.head(tensor).bytes);
        std::memset(head.data(), 0, head.size());
        store(head, 1, exact_bytes);
        if (!layout.checksums()) return;
        const std::uint32_t first = layout.first_chunk(tensor);
        const auto add = [&](std::uint32_t number) {
            const Extent e = layout.chunk(number).extent;
            store(head, number - first + 1, checksum(slot.subspan(e.offset, e.bytes), seed + number));
        };
        for (unsigned p = 0; p < layout.parts(); ++p) {
            const auto range =
                p == layout.exact_part() ? layout.exact_chunks(tensor, exact_bytes) : layout.chunks(tensor, p);
            for (std::uint32_t n = range.begin; n < range.end; ++n)
                if (n != first) add(n);
        }
        store(head, 0, of_first_chunk(layout, tensor, seed, slot));
    }

    /// Of a first chunk that has arrived. Always true without checksums.
    [[nodiscard]] static bool is_intact(const SlotLayout& layout, std::uint32_t tensor, std::uint64_t seed,
                                        ConstByteSpan slot) noexcept {
        if (!layout.checksums()) return true;
        return load(slot.subspan(layout.head(tensor).offset), 0) == of_first_chunk(layout, tensor, seed, slot);
    }

    /// Of any other chunk, once the first one is intact.
    [[nodiscard]] static bool is_intact(const SlotLayout& layout, const SlotLayout::Chunk& chunk, std::uint32_t number,
                                        std::uint64_t seed, ConstByteSpan slot) noexcept {
        if (!layout.checksums()) return true;
        const ConstByteSpan head = slot.subspan(layout.head(chunk.tensor).offset);
        return load(head, number - layout.first_chunk(chunk.tensor) + 1) ==
               checksum(slot.subspan(chunk.extent.offset, chunk.extent.bytes), seed + number);
    }

    [[nodiscard]] static std::uint64_t exact_bytes(const SlotLayout& layout, std::uint32_t tensor,
                                                   ConstByteSpan slot) noexcept {
        return load(slot.subspan(layout.head(tensor).offset), 1);
    }

   private:
    static_assert(std::endian::native == std::endian::little, "words are copied as they are");

    [[nodiscard]] static std::uint64_t of_first_chunk(const SlotLayout& layout, std::uint32_t tensor,
                                                      std::uint64_t seed, ConstByteSpan slot) noexcept {
        const std::uint32_t number = layout.first_chunk(tensor);
        const Extent e = layout.chunk(number).extent;
        return checksum(slot.subspan(e.offset + kWord, e.bytes - kWord), seed + number);
    }
    static void store(ByteSpan head, std::size_t word, std::uint64_t value) noexcept {
        std::memcpy(head.data() + word * kWord, &value, kWord);
    }
    [[nodiscard]] static std::uint64_t load(ConstByteSpan head, std::size_t word) noexcept {
        std::uint64_t value = 0;
        std::memcpy(&value, head.data() + word * kWord, kWord);
        return value;
    }
};

}  // namespace lynx
