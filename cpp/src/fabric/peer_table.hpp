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
        bool removed = false;         ///< takes no more writes; leaves the table later, see take_removed
        Clock::time_point removed_at{};
        /// When it last completed a write, or took one with nothing outstanding.
        Clock::time_point heard_at{};
        /// It has looked dead (a write timed out), and none has completed since: a write that the provider will not
        /// take is then failed at once, so that a dead peer does not hold up the living for one deadline a write.
        /// (A lost link alone does not mean that: the provider makes a new one, and meanwhile says "try again".)
        bool stuck = false;
        /// The write that the provider would not take, by its cookie, and since when with nothing completed since.
        std::uint64_t blocked_cookie = 0;
        Clock::time_point blocked_since{};
    };

    PeerId add(fi_addr_t address) {
        const std::scoped_lock lock(mutex_);
        peers_[++last_id_].address = address;
        return last_id_;
    }

    void remove(PeerId id) noexcept {
        const std::scoped_lock lock(mutex_);
        const auto it = peers_.find(id);
        if (it == peers_.end() || it->second.removed) return;
        it->second.removed = true;
        it->second.removed_at = Clock::now();
        any_removed_ = true;
    }

    /// A copy; `removed` is true if there is no such peer.
    [[nodiscard]] Peer find(PeerId id) const {
        const std::scoped_lock lock(mutex_);
        const auto it = peers_.find(id);
        return it != peers_.end() ? it->second : Peer{.removed = true};
    }

    /// The write `cookie` to this peer was not taken; since when.
    Clock::time_point blocked(PeerId id, std::uint64_t cookie, Clock::time_point now) {
        const std::scoped_lock lock(mutex_);
        const auto it = peers_.find(id);
        if (it == peers_.end()) return now;
        Peer& peer = it->second;
        if (peer.blocked_since == Clock::time_point{} || peer.blocked_cookie != cookie) peer.blocked_since = now;
        peer.blocked_cookie = cookie;
        return peer.blocked_since;
    }

    void posted(PeerId id, Clock::time_point now) {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(id); it != peers_.end()) {
            if (it->second.outstanding++ == 0) it->second.heard_at = now;
            it->second.blocked_since = {};
        }
    }

    void completed(PeerId id, bool ok) {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(id); it != peers_.end()) {
            --it->second.outstanding;
            it->second.blocked_since = {};
            it->second.heard_at = Clock::now();
            if (ok) it->second.stuck = false;
        }
    }

    void set_stuck(PeerId id) {
        const std::scoped_lock lock(mutex_);
        if (const auto it = peers_.find(id); it != peers_.end()) it->second.stuck = true;
    }

    /// Those that have writes outstanding and have completed none for longer than `deadline`; they are stuck from now
    /// on, and what they take next has as long again.
    [[nodiscard]] std::vector<PeerId> take_silent(Clock::time_point now, Clock::duration deadline) {
        const std::scoped_lock lock(mutex_);
        std::vector<PeerId> silent;
        for (auto& [id, peer] : peers_) {
            if (peer.outstanding == 0 || now - peer.heard_at <= deadline) continue;
            peer.stuck = true;
            peer.heard_at = now;
            silent.push_back(id);
        }
        return silent;
    }

    /// Some write is with the provider whose peer is neither removed nor looks dead.
    [[nodiscard]] bool any_live_outstanding() const {
        const std::scoped_lock lock(mutex_);
        return std::ranges::any_of(peers_, [](const auto& each) {
            return each.second.outstanding > 0 && !each.second.removed && !each.second.stuck;
        });
    }

    /// The addresses that the provider may forget: of peers removed a while ago that have nothing outstanding, unless
    /// the same address has been added again. Those peers leave the table. Not at once, because the peer may still be
    /// writing to us when we remove it, and the shm of libfabric 1.17 crashes on what comes from an unknown one.
    [[nodiscard]] std::vector<fi_addr_t> take_removed(Clock::time_point now) {
        const std::scoped_lock lock(mutex_);
        std::vector<fi_addr_t> gone;
        if (!any_removed_) return gone;
        any_removed_ = false;
        for (auto it = peers_.begin(); it != peers_.end();) {
            if (!it->second.removed) {
                ++it;
            } else if (it->second.outstanding > 0 || now - it->second.removed_at < kForgetAfter) {
                any_removed_ = true;
                ++it;
            } else {
                const fi_addr_t address = it->second.address;
                it = peers_.erase(it);
                const bool in_use = std::ranges::any_of(
                    peers_, [address](const auto& other) { return other.second.address == address; });
                if (!in_use) gone.push_back(address);
            }
        }
        return gone;
    }

   private:
    static constexpr Clock::duration kForgetAfter = std::chrono::seconds(2);

    mutable std::mutex mutex_;
    std::unordered_map<PeerId, Peer> peers_;
    PeerId last_id_ = 0;
    bool any_removed_ = false;
};

}  // namespace lynx::fabric
