// First-fit allocation inside the one registered buffer, in turn. Few, large blocks: a sorted list is enough.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "lynx/deadline.hpp"

namespace lynx {

class Arena;

/// A block of an arena, which outlives it. The destructor gives it back.
class ArenaBlock {
   public:
    ArenaBlock() noexcept = default;
    ArenaBlock(Arena& arena, std::size_t offset) noexcept : arena_(&arena), offset_(offset) {}
    ArenaBlock(ArenaBlock&& other) noexcept : arena_(std::exchange(other.arena_, nullptr)), offset_(other.offset_) {}
    ArenaBlock& operator=(ArenaBlock&& other) noexcept {
        std::swap(arena_, other.arena_);
        std::swap(offset_, other.offset_);
        return *this;
    }
    ~ArenaBlock();

    [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
    [[nodiscard]] bool taken() const noexcept { return arena_ != nullptr; }
    /// It stays taken as long as the arena lives: a stranger may still write to it.
    void keep() noexcept;
    /// It stays taken for a while yet.
    void give_back_after(Clock::duration time) noexcept;

   private:
    Arena* arena_ = nullptr;
    std::size_t offset_ = 0;
};

class Arena {
   public:
    explicit Arena(std::size_t bytes);

    /// A page-aligned block of at least `bytes`, at once. Throws ArenaFull naming what was asked and what is free, or
    /// that others wait, who come first.
    [[nodiscard]] ArenaBlock allocate(std::size_t bytes);

    /// A place in the line of those who wait, behind all earlier ones.
    [[nodiscard]] std::uint64_t next_turn() noexcept;
    /// Waits until there is room and nobody with an earlier turn waits; nothing at the deadline, after which the turn
    /// may be used again. `between` is called about every 50 ms without a lock; what it throws ends the wait. Throws
    /// ArenaFull at once for what could never fit.
    [[nodiscard]] std::optional<ArenaBlock> wait(std::size_t bytes, std::uint64_t turn, Deadline deadline,
                                                 const std::function<void()>& between = {});

    [[nodiscard]] std::size_t free_bytes() noexcept;
    /// The blocks that are kept for ever.
    struct Held {
        std::size_t blocks = 0;
        std::size_t bytes = 0;
    };
    [[nodiscard]] Held held() const noexcept;
    /// Of them, for a message that tells of too little room; empty if there are none.
    [[nodiscard]] std::string held_in_words() const;

   private:
    friend class ArenaBlock;
    void release(std::size_t offset) noexcept;
    void release_at(std::size_t offset, Clock::time_point when) noexcept;
    void hold(std::size_t offset) noexcept;
    // The mutex is held.
    /// Releases what is due.
    void tidy() noexcept;
    [[nodiscard]] std::size_t unused() const noexcept;
    /// Takes a block; or nothing, and `largest` is then the largest hole.
    [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes, std::size_t& largest);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    const std::size_t size_;
    std::map<std::size_t, std::size_t> used_;           // offset -> bytes
    std::map<std::size_t, Clock::time_point> leaving_;  // of those: offset -> when they are released
    Held held_;
    std::multiset<std::uint64_t> waiting_;  // turns
    std::uint64_t last_turn_ = 0;
};

}  // namespace lynx
