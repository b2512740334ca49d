#include "faulty/network.hpp"

#include <algorithm>
#include <cstring>

#include "core/text.hpp"

namespace lynx::faulty {
namespace {

/// As a network card would: whoever reads that memory meanwhile has to expect it, and the thread sanitizer cannot know.
#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize_thread)) void put(ByteSpan to, ConstByteSpan bytes) {
    volatile std::byte* out = to.data();
    for (const std::byte b : bytes) *out++ = b;
}
#else
void put(ByteSpan to, ConstByteSpan bytes) {
    std::memcpy(to.data(), bytes.data(), bytes.size());
}
#endif

}  // namespace

std::uint64_t FaultyFabric::Network::add_region(ByteSpan memory, MemoryAccess access) {
    const std::scoped_lock lock(mutex_);
    regions_.emplace(++last_number_, Region{memory, access});
    return last_number_;
}

void FaultyFabric::Network::remove_region(std::uint64_t number) noexcept {
    const std::scoped_lock lock(mutex_);
    regions_.erase(number);
}

std::uint64_t FaultyFabric::Network::add_endpoint(Inbox& inbox) {
    const std::scoped_lock lock(mutex_);
    endpoints_.emplace(++last_number_, &inbox);
    return last_number_;
}

void FaultyFabric::Network::remove_endpoint(std::uint64_t number) noexcept {
    const std::scoped_lock lock(mutex_);
    endpoints_.erase(number);
    std::erase_if(half_in_, [&](const HalfIn& write) { return write.endpoint == number; });
}

void FaultyFabric::Network::stall(std::uint64_t stream) {
    const std::scoped_lock lock(mutex_);
    stalled_.insert(stream);
}

void FaultyFabric::Network::heal(std::uint64_t stream) {
    const std::scoped_lock lock(mutex_);
    stalled_.erase(stream);
    std::erase_if(half_in_, [&](const HalfIn& write) {
        if (write.stream != stream) return false;
        put(write.to, write.bytes);
        return true;
    });
}

std::size_t FaultyFabric::Network::half_in() const {
    const std::scoped_lock lock(mutex_);
    return half_in_.size();
}

bool FaultyFabric::Network::stalls(const Write& write, std::uint64_t stream, std::uint64_t endpoint) {
    const std::scoped_lock lock(mutex_);
    if (!stalled_.contains(stream)) return false;
    std::string invalid;
    if (const Region* region = target(write, invalid); region != nullptr)
        half_in_.push_back({stream, endpoint, region->memory.subspan(write.remote_address, write.source.size()),
                            std::vector<std::byte>(write.source.begin(), write.source.end())});
    return true;
}

bool FaultyFabric::Network::is_registered(ConstByteSpan source, std::uint64_t region) const {
    const std::scoped_lock lock(mutex_);
    const auto it = regions_.find(region);
    if (it == regions_.end()) return false;
    const ConstByteSpan memory = it->second.memory;
    return source.data() >= memory.data() && source.data() + source.size() <= memory.data() + memory.size();
}

FaultyFabric::Network::Region* FaultyFabric::Network::target(const Write& write, std::string& invalid) {
    const auto it = regions_.find(write.remote_key);
    if (it == regions_.end() || it->second.access != MemoryAccess::kRemoteWrite) {
        invalid = text("key ", write.remote_key, " opens no region");
    } else if (const std::size_t bytes = it->second.memory.size();
               write.remote_address > bytes || write.source.size() > bytes - write.remote_address) {
        invalid = text(write.source.size(), " bytes at ", write.remote_address, " do not lie in the region of ", bytes);
    } else {
        return &it->second;
    }
    ++counts_.rejected;
    return nullptr;
}

FaultyFabric::Network::Decision FaultyFabric::Network::decide_on(const Write& write, std::uint64_t stream,
                                                                 std::string& invalid) {
    const std::scoped_lock lock(mutex_);
    Region* region = target(write, invalid);
    if (region == nullptr) return {};
    WriteId id{stream, write.tag, write.remote_address, 0};
    id.tried = region->tries[{id.stream, id.tag, id.offset}]++;
    const Fault fault = decide(options_, id);
    ++counts_.writes;
    ++counts_.faults.at(static_cast<std::size_t>(fault));
    if (fault != Fault::kNone) events_.push_back({id, fault});
    return {id, fault};
}

std::string FaultyFabric::Network::land(ConstByteSpan bytes, const Write& write, std::uint64_t endpoint,
                                        std::optional<std::uint64_t> flip) {
    const std::scoped_lock lock(mutex_);
    const auto peer = endpoints_.find(endpoint);
    if (peer == endpoints_.end()) return "the peer's endpoint has closed";
    std::string invalid;
    Region* region = target(write, invalid);
    if (region == nullptr) return invalid;
    const ByteSpan to = region->memory.subspan(write.remote_address, bytes.size());
    put(to, bytes);
    if (flip) {
        const std::uint64_t bit = *flip % (8 * bytes.size());
        const std::byte flipped = bytes[bit / 8] ^ static_cast<std::byte>(1U << (bit % 8));
        put(to.subspan(bit / 8, 1), {&flipped, 1});
    }
    ++counts_.landed;
    peer->second->leave(write.tag);
    return {};
}

FaultCounts FaultyFabric::Network::counts() const {
    const std::scoped_lock lock(mutex_);
    return counts_;
}

std::vector<FaultEvent> FaultyFabric::Network::trace() const {
    std::vector<FaultEvent> events;
    {
        const std::scoped_lock lock(mutex_);
        events = events_;
    }
    std::ranges::sort(events);
    return events;
}

std::size_t FaultyFabric::Network::regions() const {
    const std::scoped_lock lock(mutex_);
    return regions_.size();
}

std::size_t FaultyFabric::Network::endpoints() const {
    const std::scoped_lock lock(mutex_);
    return endpoints_.size();
}

}  // namespace lynx::faulty
