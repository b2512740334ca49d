#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>

#include "fabric/libfabric_endpoint.hpp"
#include "fabric/shm_name.hpp"

namespace lynx::fabric {

namespace {

constexpr std::size_t kMinCompletions = 4096;
constexpr std::size_t kMaxReceives = 512;
/// How often a stopping thread that does not end is looked at.
constexpr auto kPatience = std::chrono::milliseconds(500);

// shm endpoints of one process share their memory in libfabric 1.17: one that closes takes it from under the others,
// whose threads may still be looking into it.
std::atomic<int> open_shm_endpoints = 0;

// An address blob is a u8 length, that many characters of the provider's name, and the provider's own
// address. Two providers' addresses may look alike (net, tcp and rxm all use plain socket addresses) and do
// not mix.

std::vector<std::byte> pack_address(const std::string& provider, ConstByteSpan raw) {
    std::vector<std::byte> blob;
    blob.reserve(1 + provider.size() + raw.size());
    blob.push_back(static_cast<std::byte>(provider.size()));
    const auto name = std::as_bytes(std::span(provider));
    blob.insert(blob.end(), name.begin(), name.end());
    blob.insert(blob.end(), raw.begin(), raw.end());
    return blob;
}

ConstByteSpan unpack_address(ConstByteSpan blob, const std::string& provider) {
    const std::size_t name_bytes = blob.empty() ? 0 : std::to_integer<std::size_t>(blob[0]);
    if (name_bytes == 0 || blob.size() <= 1 + name_bytes) {
        throw FabricError(text("a peer's fabric address of ", blob.size(),
                               " bytes is malformed; pass what the peer's Endpoint::address() returned, unchanged"));
    }
    const std::string name(reinterpret_cast<const char*>(blob.data()) + 1, name_bytes);
    if (name != provider) {
        throw FabricError(text("the peer uses fabric provider '", name, "' and this endpoint '", provider,
                               "'; choose the same one on both sides"));
    }
    return blob.subspan(1 + name_bytes);
}

/// Keeps an endpoint that cannot be closed until the process ends. Nobody drives it, so nothing more lands in memory.
void park(std::unique_ptr<EndpointState> state) {
    static std::mutex mutex;
    // Not destroyed at exit: that would close them.
    static auto* const parked = new std::vector<std::unique_ptr<EndpointState>>;
    const std::scoped_lock lock(mutex);
    parked->push_back(std::move(state));
}

}  // namespace

EndpointState::EndpointState(std::shared_ptr<Libfabric> fabric, EndpointHandler& called, const EndpointOptions& opts)
    : owner(std::move(fabric)),
      handler(called),
      options(opts),
      info(owner->endpoint_info()),
      write_flags(FI_REMOTE_CQ_DATA | FI_COMPLETION | (owner->delivery_complete() ? FI_DELIVERY_COMPLETE : 0)) {
    const std::string& name = owner->name;
    fid_domain* domain = owner->domain.get();

    fi_av_attr av{};
    av.type = FI_AV_UNSPEC;
    addresses =
        open_handle<fid_av>("fi_av_open", name, [&](fid_av** a) { return fi_av_open(domain, &av, a, nullptr); });

    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_DATA;
    cq.wait_obj = FI_WAIT_NONE;
    cq.size = std::max(kMinCompletions, info->tx_attr->size + info->rx_attr->size);
    completions =
        open_handle<fid_cq>("fi_cq_open", name, [&](fid_cq** c) { return fi_cq_open(domain, &cq, c, nullptr); });

    endpoint = open_handle<fid_ep>("fi_endpoint", name,
                                   [&](fid_ep** e) { return fi_endpoint(domain, info.get(), e, nullptr); });
    check(fi_ep_bind(endpoint.get(), &addresses->fid, 0), "fi_ep_bind (address vector)", name);
    check(fi_ep_bind(endpoint.get(), &completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind (completion queue)", name);
    check(fi_enable(endpoint.get()), "fi_enable", name);

    // verbs spends a posted receive on every write that carries data.
    spends_receives = ((info->mode | info->rx_attr->mode) & FI_RX_CQ_DATA) != 0;
    if (spends_receives) {
        receives_missing = std::min(kMaxReceives, std::max<std::size_t>(1, info->rx_attr->size));
        post_receives();
    }
    if (name == "shm") ++open_shm_endpoints;
    std::promise<void> end;
    finished = end.get_future();
    thread = std::jthread([this, end = std::move(end)](const std::stop_token& asked_to_stop) mutable {
        run(asked_to_stop);
        end.set_value();
    });
}

bool EndpointState::stop() {
    thread.request_stop();
    idle.wake();
    while (finished.wait_for(kPatience) != std::future_status::ready) {
        if (calls.stuck() && calls.abandon()) {
            thread.detach();
            if (owner->name == "shm") --open_shm_endpoints;
            return false;
        }
    }
    thread.join();
    if (owner->name == "shm" && --open_shm_endpoints > 0) return false;
    // rxm over tcp, as of libfabric 1.17, crashes when an endpoint closes while a peer's write is half in (it follows
    // the null context of what it cancels), and only the peer knows whether one is.
    return owner->name != "tcp;ofi_rxm" || arrivals == 0;
}

std::vector<std::byte> EndpointState::raw_address() const {
    std::vector<std::byte> raw(256);
    std::size_t bytes = raw.size();
    check(fi_getname(&endpoint->fid, raw.data(), &bytes), "fi_getname", owner->name);
    raw.resize(std::min(bytes, raw.size()));
    return raw;
}

LibfabricEndpoint::LibfabricEndpoint(std::shared_ptr<Libfabric> fabric, EndpointHandler& handler,
                                     const EndpointOptions& options)
    : state_(std::make_unique<EndpointState>(std::move(fabric), handler, options)) {}

LibfabricEndpoint::~LibfabricEndpoint() {
    const bool shm = state_->owner->name == "shm";
    if (state_->stop()) {
        state_.reset();
    } else {
        if (shm) remove_shm_file(state_->raw_address());
        park(std::move(state_));
    }
    if (shm) remove_stale_shm_files();  // a peer's, if it was killed
}

std::vector<std::byte> LibfabricEndpoint::address() const {
    return pack_address(state_->owner->name, state_->raw_address());
}

PeerId LibfabricEndpoint::add_peer(ConstByteSpan address) {
    const std::string& name = state_->owner->name;
    const ConstByteSpan raw = unpack_address(address, name);
    // The provider gets no length and would read on: a socket address has that of our own, a name ends in a
    // zero.
    const bool is_name = state_->info->addr_format == FI_ADDR_STR;
    const auto own = state_->raw_address();
    const bool fits = is_name ? raw.back() == std::byte{0}
                              : raw.size() == own.size() && std::equal(own.begin(), own.begin() + 2, raw.begin());
    if (!fits) {
        throw FabricError(text("fabric provider '", name, "': the peer's address of ", raw.size(),
                               " bytes is not of this endpoint's kind (", own.size(),
                               " bytes); use the same kind of host address, IPv4 or IPv6, on both sides"));
    }
    if (state_->calls.stuck()) {
        throw FabricError(text("fabric provider '", name,
                               "': no peer can be added: the endpoint hangs in libfabric, as after ",
                               "a peer that was killed in the middle of a write; close it and open another one"));
    }
    fi_addr_t inserted = FI_ADDR_UNSPEC;
    const int count = fi_av_insert(state_->addresses.get(), raw.data(), 1, &inserted, 0, nullptr);
    if (count != 1 || inserted == FI_ADDR_NOTAVAIL) {
        throw FabricError(text("fabric provider '", name, "': the peer's address was not taken (fi_av_insert): ",
                               count < 0 ? reason_of(count) : "refused by the provider",
                               "; check that the peer is reachable from this machine"));
    }
    return state_->peers.add(inserted);
}

void LibfabricEndpoint::remove_peer(PeerId peer) noexcept {
    state_->peers.remove(peer);
    state_->idle.wake();
}

void LibfabricEndpoint::wake() noexcept {
    state_->idle.wake();
}

std::unique_ptr<EndpointBackend> Libfabric::open_endpoint(EndpointHandler& handler, const EndpointOptions& options) {
    return std::make_unique<LibfabricEndpoint>(shared_from_this(), handler, options);
}

}  // namespace lynx::fabric
