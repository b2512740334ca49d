// Which chunk goes next, over all the transfers of an endpoint: anchors before residuals, then first come first
// served, each within its own rate and window.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lynx/fabric.hpp"
#include "stream/send_state.hpp"

namespace lynx {

class SendQueue {
   public:
    void add(const std::shared_ptr<PlaneSender::State>& state);

    // The endpoint's side, on its progress thread.
    [[nodiscard]] const Write* next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept;
    void on_posted() noexcept;
    [[nodiscard]] bool on_refused() noexcept;
    void on_written(std::uint64_t cookie) noexcept;
    void on_write_failed(std::uint64_t cookie, const std::exception_ptr& error) noexcept;

   private:
    [[nodiscard]] const Write* next_refused() noexcept;
    [[nodiscard]] const Write* next_chunk(Clock::time_point now, Clock::time_point& retry_at) noexcept;

    struct InFlight {
        std::shared_ptr<PlaneSender::State> state;
        SendChunk chunk;
    };

    std::mutex mutex_;  // guards what follows; taken before a state's own
    std::vector<std::weak_ptr<PlaneSender::State>> states_;
    std::unordered_map<std::uint64_t, InFlight> in_flight_;
    std::uint64_t next_cookie_ = 1;
    std::optional<Write> current_;  // handed out by next_write, its fate not yet told
    // Writes that the provider would not take yet, one a peer at most; that peer's other chunks wait behind it.
    struct Refused {
        Write write;
        bool offered = false;  // again, since next_write last had nothing
    };
    std::map<PeerId, Refused> refused_;
};

}  // namespace lynx
