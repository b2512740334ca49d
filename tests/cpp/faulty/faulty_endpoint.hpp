// An endpoint of a FaultyFabric, with the one thread that calls its handler.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "faulty/network.hpp"

namespace lynx::faulty {

class FaultyEndpoint final : public EndpointBackend, private Inbox {
   public:
    FaultyEndpoint(std::shared_ptr<FaultyFabric::Network> network, std::uint64_t stream, EndpointHandler& handler,
                   const EndpointOptions& options);
    FaultyEndpoint(const FaultyEndpoint&) = delete;
    FaultyEndpoint& operator=(const FaultyEndpoint&) = delete;
    ~FaultyEndpoint() override;

    [[nodiscard]] std::vector<std::byte> address() const override;
    [[nodiscard]] PeerId add_peer(ConstByteSpan address) override;
    void remove_peer(PeerId peer) noexcept override;
    void wake() noexcept override;

   private:
    struct Peer {
        std::uint64_t endpoint = 0;
        bool dead = false;  ///< killed: nothing goes there any more
        std::optional<std::uint64_t> refused_cookie{};
        Clock::time_point refused_since{};
    };
    /// A landing that is yet to come.
    struct Pending {
        Write write;
        std::uint64_t endpoint = 0;
        Clock::time_point due{};
        std::uint64_t after_posts = ~std::uint64_t{0};  ///< or once this many writes have been posted
        std::vector<std::byte> copy{};  ///< of a double: its bytes, since the source may be in other use by then
    };
    struct Report {
        std::uint64_t cookie = 0;
        std::exception_ptr error;  ///< null: written
    };

    void leave(std::uint32_t tag) override;
    void run(const std::stop_token& asked_to_stop);
    bool deliver();
    bool land_due();
    bool post_some(Clock::time_point& retry_at);
    enum class PostResult : std::uint8_t { kPosted, kFailed, kAgain };
    PostResult post(const Write& write);
    PostResult refuse(const Write& write);
    PostResult fail(const Write& write, const std::exception_ptr& error);
    void carry_out(const FaultyFabric::Network::Decision& decision, const Write& write, std::uint64_t endpoint);
    void land(const Write& write, std::uint64_t endpoint, std::optional<std::uint64_t> flip = std::nullopt);
    void wait(Clock::time_point until);

    const std::shared_ptr<FaultyFabric::Network> network_;
    const std::uint64_t stream_;
    EndpointHandler& handler_;
    const EndpointOptions options_;

    std::mutex mutex_;  // never held while the network or the handler is called
    std::condition_variable changed_;
    bool woken_ = false;
    std::deque<std::uint32_t> inbox_;
    std::map<PeerId, Peer> peers_;  // without the removed ones
    PeerId last_peer_ = 0;

    // The thread's own.
    std::uint64_t posts_ = 0;
    std::vector<Pending> pending_;
    std::deque<Report> reports_;

    std::uint64_t number_;  // after all that leave() needs
    std::jthread thread_;
};

}  // namespace lynx::faulty
