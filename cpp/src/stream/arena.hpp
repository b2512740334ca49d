// First-fit allocation inside the one registered buffer. Few, large blocks: a sorted list is enough.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace lynx {

class Arena {
   public:
    explicit Arena(std::size_t bytes);

    /// The offset of a block of at least `bytes`, page-aligned. Throws ArenaFull naming what was asked and what is
    /// free.
    [[nodiscard]] std::size_t allocate(std::size_t bytes);
    /// Gives back the block at `offset`.
    void release(std::size_t offset) noexcept;
    [[nodiscard]] std::size_t free_bytes() const noexcept;

   private:
    [[nodiscard]] std::size_t unused() const noexcept;  // the mutex is held

    mutable std::mutex mutex_;
    const std::size_t size_;
    std::map<std::size_t, std::size_t> used_;  // offset -> bytes
};

}  // namespace lynx
