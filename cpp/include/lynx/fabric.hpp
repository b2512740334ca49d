// libfabric behind RAII: a provider opened for RMA writes with 32 bits of remote data. This layer moves spans
// with an opaque tag; it knows nothing of planes, requests or tensors.
//
// Who owns what: a Fabric shares its FabricBackend, which is libfabric unless another one is given; Endpoint and
// MemoryRegion keep that backend alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lynx/buffer.hpp"
#include "lynx/deadline.hpp"
#include "lynx/device_memory.hpp"
#include "lynx/export.hpp"

namespace lynx {

/// One provider that libfabric offers here, and whether Lynx can use it.
struct ProviderInfo {
    std::string name;     ///< libfabric's name, e.g. "net", "tcp;ofi_rxm", "shm"
    std::string version;  ///< the provider's own
    bool usable = false;
    std::string reason;  ///< why not, in words; empty if usable
};

class FabricBackend;
class MemoryRegionBackend;
class EndpointBackend;

struct FabricOptions {
    /// "auto" takes the first usable of: verbs, efa, net, tcp, tcp;ofi_rxm. shm only by name: it reaches this machine
    /// alone.
    std::string provider = "auto";
    /// The local address to use; what peers connect to. Ignored by shm.
    std::string host = "127.0.0.1";
    /// What moves the bytes instead of libfabric: a test's double. Provider and host then mean nothing.
    std::shared_ptr<FabricBackend> backend = nullptr;
    /// Asks for registration of a device's memory (FI_HMEM) too; Fabric::why_no_device_memory() says what came of it.
    bool device_memory = false;
};

/// Everything that libfabric lists, each tried with Lynx's needs at `options.host`.
[[nodiscard]] LYNX_API std::vector<ProviderInfo> list_providers(const std::string& host = "127.0.0.1");
/// "1.17.0": the library at run time.
[[nodiscard]] LYNX_API std::string fabric_version();

class LYNX_API Fabric {
   public:
    /// Throws FabricError that lists every provider found and why each was refused.
    explicit Fabric(const FabricOptions& options = {});
    /// On a backend of the caller's.
    explicit Fabric(std::shared_ptr<FabricBackend> backend);

    [[nodiscard]] const std::string& provider() const noexcept;
    /// What EndpointHandler::on_written means: true if the bytes are in the peer's memory, false if they have only
    /// left.
    [[nodiscard]] bool delivery_complete() const noexcept;
    /// Why a device's memory cannot be registered, in words; empty if the provider grants it. Whether it works with the
    /// device there is, only a registration shows.
    [[nodiscard]] std::string why_no_device_memory() const;
    [[nodiscard]] const std::shared_ptr<FabricBackend>& backend() const noexcept { return backend_; }

   private:
    std::shared_ptr<FabricBackend> backend_;
};

/// Where a peer may write: handed out by the owner of the memory, used by the writer.
struct RemoteRegion {
    std::uint64_t address = 0;  ///< of the region's first byte, as the provider wants it (virtual, or offset 0)
    std::uint64_t key = 0;
    std::uint64_t bytes = 0;
};

enum class MemoryAccess : std::uint8_t {
    kLocal,        ///< the source of this process's own writes; no key opens it
    kRemoteWrite,  ///< that, and whoever has the key may write into it
};

/// Registered memory. The bytes are the caller's and outlive this object. Regions may overlap; each has a key of
/// its own, which opens this region alone and nothing once it is destroyed. What a write with such a key does at
/// either side, and what the destruction does to one that is half in, depends on the provider: docs/fabric.md.
class LYNX_API MemoryRegion {
   public:
    /// Throws FabricError if the provider refuses, InvalidArgument for no memory, or for memory of another kind than
    /// `place` says (which only its device can tell).
    MemoryRegion(const Fabric& fabric, ByteSpan memory, MemoryAccess access = MemoryAccess::kRemoteWrite,
                 const MemoryPlace& place = {});
    MemoryRegion(MemoryRegion&&) noexcept;
    MemoryRegion& operator=(MemoryRegion&&) noexcept;
    ~MemoryRegion();

    [[nodiscard]] ByteSpan memory() const noexcept;
    [[nodiscard]] void* descriptor() const noexcept;     ///< the provider's local handle
    [[nodiscard]] RemoteRegion remote() const noexcept;  ///< for all of memory(); all zeros for kLocal

   private:
    std::shared_ptr<FabricBackend> fabric_;  // first in, last out
    std::unique_ptr<MemoryRegionBackend> region_;
    ByteSpan memory_;
};

/// A peer's fabric address as inserted into an endpoint.
using PeerId = std::uint64_t;

/// One RMA write with remote data.
struct Write {
    ConstByteSpan source;        ///< inside registered memory; not touched by the caller until written
    void* descriptor = nullptr;  ///< MemoryRegion::descriptor() of that memory
    PeerId peer = 0;
    std::uint64_t remote_address = 0;
    std::uint64_t remote_key = 0;
    std::uint32_t tag = 0;     ///< arrives at the other side's on_arrival
    std::uint64_t cookie = 0;  ///< comes back in on_written or on_write_failed
};

/// What an endpoint's progress thread calls. Nothing here may block, throw, or destroy the endpoint.
class EndpointHandler {
   public:
    virtual ~EndpointHandler() = default;
    /// A peer's write of `tag` has landed: its bytes are in memory.
    virtual void on_arrival(std::uint32_t tag) noexcept = 0;
    /// The write to post next, most urgent first, or nullptr. `retry_at` is set to the time at which to ask
    /// again if pacing is what holds it back. Not asked again for the same write once on_posted was called.
    [[nodiscard]] virtual const Write* next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept = 0;
    /// The write last returned by next_write is with the provider.
    virtual void on_posted() noexcept = 0;
    /// The provider would not take that write yet; next_write has to return it again, some time. True if next_write has
    /// something for other peers meanwhile, so that one that takes nothing does not hold up the rest.
    [[nodiscard]] virtual bool on_refused() noexcept { return false; }
    /// The source of that write may be reused. If Fabric::delivery_complete(), its bytes are in the peer's memory;
    /// otherwise they have left, and whether the peer has them, the peer says.
    virtual void on_written(std::uint64_t cookie) noexcept = 0;
    /// That write failed; it was posted, or it was the one last returned by next_write and could not be. Its source may
    /// be reused, but after a Timeout the provider may still send what then lies there, should the peer come back:
    /// nobody must use what arrives for the request that has failed.
    virtual void on_write_failed(std::uint64_t cookie, std::exception_ptr error) noexcept = 0;
    /// The endpoint no longer works: nothing more will arrive, and every write fails.
    virtual void on_broken(const std::exception_ptr& error) noexcept { (void)error; }
};

struct EndpointOptions {
    /// How long the provider may answer "try again" to one write, and a peer may confirm none of the writes posted to
    /// it, before that write or those fail with Timeout. One write must not take that long.
    Clock::duration post_deadline = std::chrono::seconds(5);
};

/// An endpoint with its address vector, completion queue and the one thread that drives them. The handler
/// outlives the endpoint. add_peer, remove_peer and wake may be called from any thread.
class LYNX_API Endpoint {
   public:
    Endpoint(const Fabric& fabric, EndpointHandler& handler, const EndpointOptions& options = {});
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    /// Posts nothing more, lets posted writes finish for at most half a second, stops the thread and closes; what is
    /// then still outstanding is dropped without a call. No handler call runs after it.
    /// Two faults of libfabric 1.17 are lived with here: an endpoint of "tcp;ofi_rxm" that peers have written to, and
    /// one of "shm" whose thread hangs on the lock of a killed peer, are set aside until the process ends, not closed.
    ~Endpoint();

    /// The address blob to hand to peers.
    [[nodiscard]] std::vector<std::byte> address() const;
    /// Throws FabricError for a blob that the provider does not take.
    [[nodiscard]] PeerId add_peer(ConstByteSpan address);
    void remove_peer(PeerId peer) noexcept;
    /// Tells the thread that next_write may have something new.
    void wake() noexcept;

   private:
    std::shared_ptr<FabricBackend> fabric_;  // first in, last out
    std::unique_ptr<EndpointBackend> endpoint_;
};

// ---- what a fabric is made of: implemented for libfabric, and by doubles in tests -----------------------------------

/// Registered memory, until it is destroyed. What each function returns is as MemoryRegion says.
class LYNX_API MemoryRegionBackend {
   public:
    virtual ~MemoryRegionBackend() = default;
    [[nodiscard]] virtual void* descriptor() const noexcept = 0;
    [[nodiscard]] virtual RemoteRegion remote() const noexcept = 0;
};

/// An open endpoint, which is closed when it is destroyed. It does as Endpoint says, and calls its handler as
/// EndpointHandler says: from one thread, never two calls at once.
class LYNX_API EndpointBackend {
   public:
    virtual ~EndpointBackend() = default;
    [[nodiscard]] virtual std::vector<std::byte> address() const = 0;
    [[nodiscard]] virtual PeerId add_peer(ConstByteSpan address) = 0;
    virtual void remove_peer(PeerId peer) noexcept = 0;
    virtual void wake() noexcept = 0;
};

/// Outlives the regions and endpoints that it has made. Its functions may be called from any thread.
class LYNX_API FabricBackend {
   public:
    virtual ~FabricBackend() = default;
    [[nodiscard]] virtual const std::string& provider() const noexcept = 0;
    [[nodiscard]] virtual bool delivery_complete() const noexcept = 0;
    /// `memory` is not empty.
    [[nodiscard]] virtual std::unique_ptr<MemoryRegionBackend> register_memory(ByteSpan memory,
                                                                               MemoryAccess access) = 0;
    /// As Fabric::why_no_device_memory. Unless overridden, host memory is all that can be registered.
    [[nodiscard]] virtual std::string why_no_device_memory() const;
    /// As register_memory, of CUDA memory of that device, which is not kept.
    [[nodiscard]] virtual std::unique_ptr<MemoryRegionBackend> register_device_memory(ByteSpan memory,
                                                                                      MemoryAccess access,
                                                                                      const MemoryDevice& device);
    [[nodiscard]] virtual std::unique_ptr<EndpointBackend> open_endpoint(EndpointHandler& handler,
                                                                         const EndpointOptions& options) = 0;
};

}  // namespace lynx
