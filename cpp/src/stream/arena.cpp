#include "stream/arena.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

namespace {

constexpr std::size_t kPage = 4096;
constexpr auto kWaitSlice = std::chrono::milliseconds(50);

// A place in the line, for as long as it lives.
class Waiting {
   public:
    Waiting(std::mutex& mutex, std::condition_variable& changed, std::multiset<std::uint64_t>& line, std::uint64_t turn)
        : mutex_(mutex), changed_(changed), line_(line) {
        const std::lock_guard lock(mutex_);
        place_ = line_.insert(turn);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
        const std::lock_guard lock(mutex_);
        line_.erase(place_);
        changed_.notify_all();  // the next one may go
    }

   private:
    std::mutex& mutex_;
    std::condition_variable& changed_;
    std::multiset<std::uint64_t>& line_;
    std::multiset<std::uint64_t>::iterator place_;
};

// Behind what was asked for and did not fit.
std::string in_words(const Arena::Held& held) {
    if (held.blocks == 0) return {};
    return text("; ", held.blocks, held.blocks == 1 ? " slot of " : " slots of ", held.bytes,
                " bytes in all are held back until the node is closed, because senders that stopped, were cut off or "
                "gave up writes may still write there (docs/fabric.md)");
}

}  // namespace

ArenaBlock::~ArenaBlock() {
    if (arena_ != nullptr) arena_->release(offset_);
}

void ArenaBlock::give_back_after(Clock::duration time) noexcept {
    if (arena_ != nullptr) std::exchange(arena_, nullptr)->release_at(offset_, Clock::now() + time);
}

void ArenaBlock::keep() noexcept {
    if (arena_ != nullptr) std::exchange(arena_, nullptr)->hold(offset_);
}

Arena::Arena(std::size_t bytes) : size_(bytes) {}

std::optional<std::size_t> Arena::take(std::size_t bytes, std::size_t& largest) {
    if (bytes > size_) return std::nullopt;
    tidy();
    bytes = std::max<std::size_t>(bytes, 1);
    const std::size_t need = (bytes + kPage - 1) / kPage * kPage;
    std::size_t at = 0;
    // A hole ends at each used block, the last one at the arena's end.
    for (const auto& [offset, length] : used_) {
        if (offset - at >= need) break;
        largest = std::max(largest, offset - at);
        at = offset + length;
    }
    const auto next = used_.lower_bound(at);
    const std::size_t end = next == used_.end() ? size_ : next->first;
    if (end - at >= bytes) {
        used_.emplace(at, std::min(need, end - at));
        return at;
    }
    largest = std::max(largest, end - at);
    return std::nullopt;
}

ArenaBlock Arena::allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty() && bytes <= size_)
        throw ArenaFull(text("a slot of ", bytes, " bytes was asked for; ", waiting_.size(),
                             " others wait for room in the arena of ", size_,
                             " bytes and come first: raise arena_bytes or finish other requests first"));
    std::size_t largest = 0;
    if (const auto offset = take(bytes, largest)) return {*this, *offset};
    throw ArenaFull(text("a slot of ", bytes, " bytes was asked for; the arena has ", size_, " bytes, ", unused(),
                         " of them free", largest != 0 ? text(", ", largest, " in one piece") : std::string(),
                         in_words(held_), ": raise arena_bytes or finish other requests first"));
}

std::uint64_t Arena::next_turn() noexcept {
    const std::lock_guard lock(mutex_);
    return ++last_turn_;
}

std::optional<ArenaBlock> Arena::wait(std::size_t bytes, std::uint64_t turn, Deadline deadline,
                                      const std::function<void()>& between) {
    if (bytes > size_)
        throw ArenaFull(text("a slot of ", bytes, " bytes was asked for; the whole arena has ", size_,
                             " bytes: raise arena_bytes"));
    const Waiting place(mutex_, changed_, waiting_, turn);
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            std::optional<std::size_t> offset;
            std::size_t largest = 0;
            changed_.wait_until(lock, std::min(deadline.at(), Clock::now() + kWaitSlice), [&] {
                if (*waiting_.begin() >= turn) offset = take(bytes, largest);
                return offset.has_value();
            });
            if (offset) return ArenaBlock(*this, *offset);
        }
        if (deadline.passed()) return std::nullopt;
        if (between) between();
    }
}

void Arena::release(std::size_t offset) noexcept {
    const std::lock_guard lock(mutex_);
    used_.erase(offset);
    changed_.notify_all();
}

void Arena::release_at(std::size_t offset, Clock::time_point when) noexcept {
    const std::lock_guard lock(mutex_);
    leaving_.emplace(offset, when);
}

void Arena::hold(std::size_t offset) noexcept {
    const std::lock_guard lock(mutex_);
    held_.blocks += 1;
    held_.bytes += used_.at(offset);
}

Arena::Held Arena::held() const noexcept {
    const std::lock_guard lock(mutex_);
    return held_;
}

std::string Arena::held_in_words() const {
    return in_words(held());
}

void Arena::tidy() noexcept {
    const auto now = Clock::now();
    std::erase_if(leaving_, [&](const auto& block) {
        if (block.second > now) return false;
        used_.erase(block.first);
        return true;
    });
}

std::size_t Arena::free_bytes() noexcept {
    const std::lock_guard lock(mutex_);
    tidy();
    return unused();
}

std::size_t Arena::unused() const noexcept {
    std::size_t used = 0;
    for (const auto& block : used_) used += block.second;
    return size_ - used;
}

}  // namespace lynx
