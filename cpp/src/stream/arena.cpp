#include "stream/arena.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

namespace {
constexpr std::size_t kPage = 4096;
}

Arena::Arena(std::size_t bytes) : size_(bytes) {}

std::size_t Arena::allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::size_t at = 0;
    std::size_t largest = 0;
    // A hole ends at each used block, the last one at the arena's end.
    if (bytes <= size_) {
        const std::size_t need = std::max<std::size_t>((bytes + kPage - 1) / kPage, 1) * kPage;
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
    }
    throw ArenaFull(text("a slot of ", bytes, " bytes was asked for; the arena has ", size_, " bytes, ", unused(),
                         " of them free", largest != 0 ? text(", ", largest, " in one piece") : std::string(),
                         ": raise arena_bytes or finish other requests first"));
}

void Arena::release(std::size_t offset) noexcept {
    const std::lock_guard lock(mutex_);
    used_.erase(offset);
}

std::size_t Arena::free_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return unused();
}

std::size_t Arena::unused() const noexcept {
    std::size_t used = 0;
    for (const auto& block : used_) used += block.second;
    return size_ - used;
}

}  // namespace lynx
