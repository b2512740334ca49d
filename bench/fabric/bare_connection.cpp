#include "bare_connection.hpp"

#include <rdma/fi_errno.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace lynx::bench {

namespace {

constexpr std::size_t kMaxAddress = 256;

void check(long result, const char* call) {
    if (result < 0) throw std::runtime_error(std::string(call) + " failed: " + fi_strerror(static_cast<int>(-result)));
}

Handle<fi_info> find(const std::string& provider, const std::string& host) {
    const Handle<fi_info> hints(fi_allocinfo());
    hints->caps = FI_MSG | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    const std::string node = provider == "shm" ? "lynxbench-" + std::to_string(getpid()) : host;
    fi_info* found = nullptr;
    check(fi_getinfo(FI_VERSION(1, 17), node.c_str(), nullptr, FI_SOURCE, hints.get(), &found), "fi_getinfo");
    Handle<fi_info> list(found);
    const fi_info* exact = list.get();
    while (exact != nullptr && provider != exact->fabric_attr->prov_name) exact = exact->next;
    if (exact == nullptr) throw std::runtime_error("libfabric does not offer provider '" + provider + "'");
    return Handle<fi_info>(fi_dupinfo(exact));
}

/// Opens one object by `open(Fid**)`.
template <class Fid, class Open>
Handle<Fid> opened(const char* call, Open&& open) {
    Fid* raw = nullptr;
    check(open(&raw), call);
    return Handle<Fid>(raw);
}

std::string to_hex(const void* data, std::size_t bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string hex;
    for (const auto* at = static_cast<const unsigned char*>(data); bytes > 0; ++at, --bytes) {
        hex += kDigits[*at >> 4];
        hex += kDigits[*at & 15];
    }
    return hex;
}

std::vector<unsigned char> from_hex(const std::string& hex) {
    std::vector<unsigned char> data(hex.size() / 2);
    for (std::size_t i = 0; i < data.size(); ++i)
        std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, data[i], 16);
    return data;
}

}  // namespace

BareConnection::BareConnection(const std::string& provider, const std::string& host, ByteSpan memory)
    : memory_(memory), info_(find(provider, host)) {
    fabric_ = opened<fid_fabric>("fi_fabric", [&](auto f) { return fi_fabric(info_->fabric_attr, f, nullptr); });
    domain_ =
        opened<fid_domain>("fi_domain", [&](auto d) { return fi_domain(fabric_.get(), info_.get(), d, nullptr); });
    fi_av_attr av{};
    addresses_ = opened<fid_av>("fi_av_open", [&](auto a) { return fi_av_open(domain_.get(), &av, a, nullptr); });
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_DATA;
    cq.size = 4096;
    completions_ = opened<fid_cq>("fi_cq_open", [&](auto c) { return fi_cq_open(domain_.get(), &cq, c, nullptr); });
    endpoint_ =
        opened<fid_ep>("fi_endpoint", [&](auto e) { return fi_endpoint(domain_.get(), info_.get(), e, nullptr); });
    check(fi_ep_bind(endpoint_.get(), &addresses_->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(endpoint_.get(), &completions_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(endpoint_.get()), "fi_enable");
    region_ = opened<fid_mr>("fi_mr_reg", [&](auto m) {
        return fi_mr_reg(domain_.get(), memory.data(), memory.size(), FI_WRITE | FI_REMOTE_WRITE, 0, 1, 0, m, nullptr);
    });
}

std::string BareConnection::endpoint() const {
    std::array<char, kMaxAddress> address{};
    std::size_t bytes = address.size();
    check(fi_getname(&endpoint_->fid, address.data(), &bytes), "fi_getname");
    const bool is_virtual = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    const std::array<std::uint64_t, 2> remote = {
        fi_mr_key(region_.get()), is_virtual ? reinterpret_cast<std::uint64_t>(memory_.data()) : std::uint64_t{0}};
    return to_hex(remote.data(), sizeof(remote)) + to_hex(address.data(), bytes);
}

void BareConnection::connect(const std::string& endpoint) {
    const std::vector<unsigned char> data = from_hex(endpoint);
    if (data.size() <= sizeof(remote_key_) + sizeof(remote_base_)) throw std::runtime_error("no endpoint: " + endpoint);
    std::memcpy(&remote_key_, data.data(), sizeof(remote_key_));
    std::memcpy(&remote_base_, data.data() + sizeof(remote_key_), sizeof(remote_base_));
    const unsigned char* address = data.data() + sizeof(remote_key_) + sizeof(remote_base_);
    if (fi_av_insert(addresses_.get(), address, 1, &peer_, 0, nullptr) != 1)
        throw std::runtime_error("fi_av_insert failed");
}

bool BareConnection::write(std::size_t offset, std::size_t bytes) {
    const ByteSpan source = memory_.subspan(offset, bytes);
    iovec local{source.data(), source.size()};
    void* descriptor = fi_mr_desc(region_.get());
    fi_rma_iov remote{remote_base_ + offset, bytes, remote_key_};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = peer_;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &context_[next_context_];
    message.data = 1;
    const ssize_t result =
        fi_writemsg(endpoint_.get(), &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE);
    if (result == -FI_EAGAIN) return false;
    check(result, "fi_writemsg");
    next_context_ = (next_context_ + 1) % std::size(context_);
    return true;
}

BareConnection::Completions BareConnection::poll() {
    std::array<fi_cq_data_entry, 64> entries;
    const ssize_t count = fi_cq_read(completions_.get(), entries.data(), entries.size());
    if (count == -FI_EAGAIN) return {};
    if (count == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        fi_cq_readerr(completions_.get(), &error, 0);
        check(-error.err, "a write");
    }
    check(count, "fi_cq_read");
    Completions all;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const bool remote = (entries[i].flags & FI_REMOTE_CQ_DATA) != 0 && (entries[i].flags & FI_WRITE) == 0;
        ++(remote ? all.arrived : all.written);
    }
    return all;
}

}  // namespace lynx::bench
