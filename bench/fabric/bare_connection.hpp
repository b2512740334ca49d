// The least that libfabric needs for RMA writes with remote data between two processes: no threads, no pacing, no
// deadlines, and nothing that Lynx adds. What Lynx's speed is held against.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lynx/buffer.hpp"

namespace lynx::bench {

struct Closed {
    template <class Fid>
    void operator()(Fid* f) const noexcept {
        fi_close(&f->fid);
    }
    void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
};
template <class Fid>
using Handle = std::unique_ptr<Fid, Closed>;

/// An endpoint with one registered buffer, and at most one peer. Throws std::runtime_error naming the call that failed.
class BareConnection {
   public:
    BareConnection(const std::string& provider, const std::string& host, ByteSpan memory);

    /// Address, key and base of the buffer, in hexadecimal digits.
    [[nodiscard]] std::string endpoint() const;
    void connect(const std::string& endpoint);

    /// False if the provider has no room for it now.
    [[nodiscard]] bool write(std::size_t offset, std::size_t bytes);
    /// What has completed since the last call: writes here, of which the peer has the bytes, and the peer's writes.
    struct Completions {
        std::size_t written = 0;
        std::size_t arrived = 0;
    };
    [[nodiscard]] Completions poll();

    /// As many writes as the provider's queue takes.
    [[nodiscard]] std::size_t queue_length() const noexcept { return info_->tx_attr->size; }

   private:
    ByteSpan memory_;
    Handle<fi_info> info_;  // in opening order, so that they close in reverse
    Handle<fid_fabric> fabric_;
    Handle<fid_domain> domain_;
    Handle<fid_av> addresses_;
    Handle<fid_cq> completions_;
    Handle<fid_ep> endpoint_;
    Handle<fid_mr> region_;
    fi_context2 context_[1024] = {};  // for providers that write to it; each in turn
    std::size_t next_context_ = 0;
    fi_addr_t peer_ = FI_ADDR_UNSPEC;
    std::uint64_t remote_base_ = 0;
    std::uint64_t remote_key_ = 0;
};

}  // namespace lynx::bench
