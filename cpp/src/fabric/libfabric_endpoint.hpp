// An endpoint's parts and the loop that drives them. What callers share with the progress thread is
// locked (peers, idle) or thread-safe in libfabric (addresses, endpoint); the rest is the thread's alone.
#pragma once

#include <array>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "fabric/idle_wait.hpp"
#include "fabric/libfabric.hpp"
#include "fabric/operation_pool.hpp"
#include "fabric/peer_table.hpp"
#include "fabric/provider_call.hpp"
#include "lynx/fabric.hpp"

namespace lynx::fabric {

/// All that an endpoint holds, in opening order, and its loop. Apart from LibfabricEndpoint, because it may have to
/// outlive that: see ~LibfabricEndpoint.
struct EndpointState {
    EndpointState(std::shared_ptr<Libfabric> fabric, EndpointHandler& handler, const EndpointOptions& options);

    /// The provider's own address of this endpoint.
    [[nodiscard]] std::vector<std::byte> raw_address() const;

    /// Stops the thread. False if the endpoint must not be closed: the thread hangs in the provider, or closing is
    /// known to crash.
    [[nodiscard]] bool stop();

    // The loop (progress.cpp).
    void run(const std::stop_token& asked_to_stop) noexcept;
    void drive(const std::stop_token& asked_to_stop);
    void settle();
    [[nodiscard]] bool drain();
    void take_completion(const fi_cq_data_entry& entry);
    void take_error();
    void finish(Operation& operation);
    void fail(Operation& operation, const std::exception_ptr& error);
    void fail_silent(Clock::time_point now);
    void break_down(const std::string& reason);
    enum class PostResult : std::uint8_t { kPosted, kFailed, kAgain };
    [[nodiscard]] bool post_all(Clock::time_point now, Clock::time_point& retry_at);
    [[nodiscard]] PostResult post(const Write& write, Clock::time_point now);
    [[nodiscard]] std::string refusal(const Write& write, const PeerTable::Peer& peer) const;
    PostResult blocked(const Write& write, const PeerTable::Peer& peer, Clock::time_point now);
    void post_receives();
    [[nodiscard]] std::string describe(PeerId peer, std::uint32_t tag, std::size_t bytes) const;

    std::shared_ptr<Libfabric> owner;
    EndpointHandler& handler;
    const EndpointOptions options;
    OperationPool operations;  // outlives the endpoint that writes to it
    InfoHandle info;
    const std::uint64_t write_flags;  ///< of every write
    Handle<fid_av> addresses;
    Handle<fid_cq> completions;
    Handle<fid_ep> endpoint;
    PeerTable peers;
    IdleWait idle;
    ProviderCalls calls;
    std::future<void> finished;

    std::size_t in_flight = 0;
    Clock::time_point silence_looked_at{};
    std::uint64_t arrivals = 0;
    bool spends_receives = false;       ///< FI_RX_CQ_DATA was granted: an arrival takes a receive
    std::size_t receives_missing = 0;   ///< of those, how many are to be posted
    bool refused = false;               ///< in this round the provider would not take some write
    std::optional<std::string> broken;  ///< why nothing works any more

    std::jthread thread;  // last: stops before anything else goes
};

class LibfabricEndpoint final : public EndpointBackend {
   public:
    LibfabricEndpoint(std::shared_ptr<Libfabric> fabric, EndpointHandler& handler, const EndpointOptions& options);
    LibfabricEndpoint(const LibfabricEndpoint&) = delete;
    LibfabricEndpoint& operator=(const LibfabricEndpoint&) = delete;
    ~LibfabricEndpoint() override;

    [[nodiscard]] std::vector<std::byte> address() const override;
    [[nodiscard]] PeerId add_peer(ConstByteSpan address) override;
    void remove_peer(PeerId peer) noexcept override;
    void wake() noexcept override;

   private:
    std::unique_ptr<EndpointState> state_;
};

}  // namespace lynx::fabric
