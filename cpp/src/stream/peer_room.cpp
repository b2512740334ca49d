// Room for transfers, in turn: see Arena.
#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/peer_impl.hpp"

namespace lynx {

ArenaBlock Peer::Impl::take_room(std::size_t bytes, Deadline deadline, const std::function<void()>& poll) {
    Arena& arena = node.impl()->arena;
    auto room = arena.wait(bytes, arena.next_turn(), deadline, [&] {
        if (poll) poll();
        const std::lock_guard lock(mutex);
        throw_if_lost();
    });
    if (!room)
        throw Timeout(text("a transfer to ", link.peer_name(), " needs ", bytes, " bytes of this node's arena of ",
                           node.arena_bytes(), "; other requests left no room for it in time", arena.held_in_words()));
    return std::move(*room);
}

std::optional<ArenaBlock> Peer::Impl::room_for_offer(const Manifest& manifest, Deadline deadline) {
    const std::uint64_t id = manifest.request_id;
    Arena& arena = node.impl()->arena;
    std::uint64_t turn = 0;
    {
        const std::lock_guard lock(mutex);
        const auto [place, added] = turns.try_emplace(id);
        if (added) place->second = arena.next_turn();
        turn = place->second;
    }
    std::optional<ArenaBlock> room;
    std::exception_ptr refused;
    try {
        room = arena.wait(SlotLayout(manifest).bytes(), turn, deadline, [this] {
            const std::lock_guard lock(mutex);
            throw_if_lost();
        });
    } catch (...) {
        refused = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (refused || room) turns.erase(id);
    if (refused) std::rethrow_exception(refused);
    return room;
}

void Peer::Impl::put_back(std::uint64_t request_id, std::vector<std::byte> offer) {
    const std::lock_guard lock(mutex);
    incoming.erase(request_id);
    offers.push_front(std::move(offer));
    changed.notify_all();
}

}  // namespace lynx
