// Who the peers of an endpoint are. A PeerId is never used twice, unlike the provider's addresses: a write
// queued for a peer that has been removed can so never reach the one that came after it.
#pragma once

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fabric/handle.hpp"
#include "lynx/fabric.hpp"

namespace lynx::fabric {

class PeerTable {
   public:
    struct Peer {
        fi_addr_t address = FI_ADDR_UNSPEC;
        std::size_t outstanding = 0;  ///< writes with the provider
        bool removed = false;         ///< takes no more writes; leaves the table with its last outstanding one
        /// It has looked dead (a write timed out or lost its link), and none has completed since: a write
        /// that the provider will not take is then failed at once, so that a dead peer does not hold up the
        /// living for one deadline a write.
        bool stuck = false;
    };

    PeerId add(fi_addr_t address) {
        const std::scoped_lock lock(mutex_);
        peers_[++last_id_].address = address;
        return last_id_;
    }

    void remove(PeerId id) noexcept {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(id); it != peers_.end()) it->second.removed = true;
        any_removed_ = true;
    }

    /// A copy; `removed` is true if there is no such peer.
    [[nodiscard]] Peer find(PeerId id) const {
        const std::scoped_lock lock(mutex_);
        const auto it = peers_.find(id);
        return it != peers_.end() ? it->second : Peer{.removed = true};
    }

    void posted(PeerId id) {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(id); it != peers_.end()) ++it->second.outstanding;
    }

    void completed(PeerId id, bool ok, bool gone) {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(id); it != peers_.end()) {
            --it->second.outstanding;
            if (ok) it->second.stuck = false;
            if (gone) it->second.stuck = true;
        }
    }

    void set_stuck(PeerId id) {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(id); it != peers_.end()) it->second.stuck = true;
    }

    /// Some write is with the provider whose peer is neither removed nor looks dead.
    [[nodiscard]] bool any_live_outstanding() const {
        const std::scoped_lock lock(mutex_);
        return std::ranges::any_of(peers_, [](const auto& each) {
            return each.second.outstanding > 0 && !each.second.removed && !each.second.stuck;
        });
    }

    /// The addresses of removed peers that have nothing outstanding any more; they leave the table.
    [[nodiscard]] std::vector<fi_addr_t> take_removed() {
        const std::scoped_lock lock(mutex_);
        std::vector<fi_addr_t> gone;
        if (!any_removed_) return gone;
        any_removed_ = false;
        for (auto it = peers_.begin(); it != peers_.end();) {
            if (!it->second.removed) {
                ++it;
            } else if (it->second.outstanding > 0) {
                any_removed_ = true;
                ++it;
            } else {
                gone.push_back(it->second.address);
                it = peers_.erase(it);
            }
        }
        return gone;
    }

   private:
    mutable std::mutex mutex_;
    std::unordered_map<PeerId, Peer> peers_;
    PeerId last_id_ = 0;
    bool any_removed_ = false;
};

}  // namespace lynx::fabric
