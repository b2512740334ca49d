// Which chunk goes next over which rail, over all the transfers of a node. By class first: anchors, residuals, exact
// tiers, each lower one with a small share. Within a class by deadline, anchors then by layer, then whoever has had
// least for its weight. Each transfer keeps to its rate, each peer's rail to its window.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lynx/fabric.hpp"
#include "stream/flight_window.hpp"
#include "stream/send_state.hpp"

namespace lynx {

class SendQueue {
   public:
    SendQueue(std::size_t rails, double floor);

    /// False if there is no such peer, or none any more.
    bool add(const std::shared_ptr<PlaneSender::State>& state);
    /// The way to a peer over one rail: its number there, and the window if that is not to be measured.
    struct Way {
        PeerId on_rail = 0;
        std::uint64_t window_bytes = 0;
    };
    void add_peer(PeerId peer, const std::vector<Way>& ways);
    /// Ends the transfers to it. Its numbers on the rails; none if there is no such peer.
    std::vector<PeerId> remove_peer(PeerId peer) noexcept;
    [[nodiscard]] bool knows(PeerId peer) const noexcept;
    /// Its rails that had died are tried again: it has opened its memory anew.
    void revive(PeerId peer) noexcept;
    [[nodiscard]] std::size_t live_rails(PeerId peer) const noexcept;
    /// Over all peers, without the mutex.
    [[nodiscard]] std::size_t live_rails() const noexcept { return all_live_rails_.load(std::memory_order_relaxed); }
    /// Bytes per second to this peer over all rails; 0 if nothing was measured.
    [[nodiscard]] double rate(PeerId peer) const noexcept;

    // The rail's side, on its thread.
    [[nodiscard]] const Write* next_write(std::size_t rail, Clock::time_point now,
                                          Clock::time_point& retry_at) noexcept;
    void on_posted(std::size_t rail) noexcept;
    [[nodiscard]] bool on_refused(std::size_t rail) noexcept;
    void on_written(std::size_t rail, std::uint64_t cookie) noexcept;
    void on_write_failed(std::size_t rail, std::uint64_t cookie, const std::exception_ptr& error) noexcept;

   private:
    struct Lane {
        PeerId on_rail = 0;
        FlightWindow window;
        bool dead = false;
    };
    struct Peer {
        std::vector<Lane> lanes;  // one a rail
        bool removed = false;
    };
    struct InFlight {
        std::shared_ptr<PlaneSender::State> state;
        std::uint32_t chunk = 0;
        std::uint64_t bytes = 0;
        FlightWindow::Stamp stamp;
        bool posted = false;
    };
    // A write that the provider would not take yet, one a peer at most; that peer's other chunks wait behind it.
    struct Refused {
        Write write;
        bool offered = false;       // again, since next_write last had nothing
        Clock::time_point since{};  // when it was last refused
    };
    struct Rail {
        std::optional<Write> current;  // handed out by next_write, its fate not yet told
        PeerId current_peer = 0;
        std::map<PeerId, Refused> refused;
        std::unordered_map<std::uint64_t, InFlight> in_flight;
    };
    struct Choice {
        std::shared_ptr<PlaneSender::State> state;
        SendCandidate candidate;
    };

    [[nodiscard]] const Write* next_refused(Rail& rail, Clock::time_point now) noexcept;
    [[nodiscard]] const Write* next_chunk(std::size_t rail, Clock::time_point now,
                                          Clock::time_point& retry_at) noexcept;
    [[nodiscard]] std::optional<Choice> choose(std::size_t rail, Clock::time_point now, Clock::time_point& retry_at);
    [[nodiscard]] Lane* lane(PeerId peer, std::size_t rail) noexcept;
    void forget_if_removed(PeerId peer) noexcept;
    [[nodiscard]] bool other_rail_lives(PeerId peer, std::size_t rail) const noexcept;

    const double floor_;

    mutable std::mutex mutex_;  // guards what follows; taken before a state's own
    std::vector<std::weak_ptr<PlaneSender::State>> states_;
    std::unordered_map<PeerId, Peer> peers_;
    std::vector<Rail> rails_;
    std::uint64_t next_cookie_ = 1;
    double served_ = 0;                        // of the transfer that was last chosen
    std::array<double, kSendClasses> owed_{};  // bytes of its share that a class has not had
    std::atomic<std::size_t> all_live_rails_{0};
};

}  // namespace lynx
