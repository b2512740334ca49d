// A tensor's vectors cut into pieces that threads code on their own. What is written of a vector depends on that
// vector alone, so no cut shows in the bytes.
#pragma once

#include <algorithm>
#include <cstddef>

#include "codec/float_environment.hpp"
#include "lynx/executor.hpp"

namespace lynx::codec {

/// Consecutive vectors of a coded tensor.
struct Piece {
    std::size_t first = 0;
    std::size_t count = 0;
};

/// Pieces begin at multiples of this. 64 vectors are at least 64 bytes of a plane and 128 of the scales, so that
/// two threads hardly ever write the same cache line; and a coding in blocks of up to 64 vectors keeps them whole.
inline constexpr std::size_t kPieceUnit = 64;

/// What a piece has of the tensor outside the coding, at least: tens of microseconds of work, many times what it costs
/// to wake a thread.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

/// How many vectors of `vector_bytes` each make a piece.
[[nodiscard]] constexpr std::size_t piece_vectors(std::size_t vector_bytes) noexcept {
    const std::size_t units = kPieceBytes / (vector_bytes * kPieceUnit);
    return std::max<std::size_t>(units, 1) * kPieceUnit;
}
static_assert(piece_vectors(128) * 128 == kPieceBytes && piece_vectors(4096) == kPieceUnit);

/// Calls use(Piece) for pieces that together are all `vectors`, in the default floating-point environment: on
/// the executor's threads, or all as one piece on the caller's where that is null or there is but one piece. `use`
/// is noexcept.
template <class Use>
void for_each_piece(Executor* executor, std::size_t vectors, std::size_t vector_bytes, const Use& use) {
    const std::size_t each = piece_vectors(vector_bytes);
    if (executor == nullptr || vectors <= each) {
        const DefaultFloatEnvironment environment;
        return use(Piece{0, vectors});
    }
    const auto task = [&](std::size_t index) noexcept {
        const DefaultFloatEnvironment environment;
        const std::size_t first = index * each;
        use(Piece{first, std::min(each, vectors - first)});
    };
    executor->run((vectors + each - 1) / each, task);
}

}  // namespace lynx::codec
