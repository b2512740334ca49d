#include "fabric/provider.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "fabric/shm_name.hpp"
#include "fabric/socket.hpp"

namespace lynx::fabric {
namespace {

constexpr std::uint64_t kCaps = FI_MSG | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
constexpr std::uint64_t kModes = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
constexpr int kMemoryModes = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
constexpr std::size_t kTagBytes = sizeof(Write::tag);

/// The order of "auto": hardware first; then the tcp family, the direct ones before the layered one.
constexpr std::array<std::string_view, 5> kAutoOrder = {"verbs;ofi_rxm", "efa", "net", "tcp", "tcp;ofi_rxm"};
/// Works, but only ever on demand: one machine (shm), deprecated and slow (sockets).
constexpr std::array<std::string_view, 2> kByName = {"shm", "sockets"};

bool is_supported(std::string_view name) {
    return std::ranges::find(kAutoOrder, name) != kAutoOrder.end() || std::ranges::find(kByName, name) != kByName.end();
}

/// The name users write for a provider, as libfabric spells it. Plain "verbs" has no reliable datagrams
/// itself.
std::string spelled_out(const std::string& name) {
    return name == "verbs" ? "verbs;ofi_rxm" : name;
}

std::string version_text(std::uint32_t version) {
    return text(FI_MAJOR(version), ".", FI_MINOR(version));
}

InfoHandle get_info(const char* node, std::uint64_t flags, const fi_info* hints, int& result) {
    fi_info* found = nullptr;
    std::uint32_t version = api_version();
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
    // Dmabufs came with this version; it is asked for where they may be wanted, and nowhere else.
    if (hints != nullptr && (hints->caps & FI_HMEM) != 0 && FI_VERSION_GE(fi_version(), FI_VERSION(1, 20)))
        version = FI_VERSION(1, 20);
#endif
    result = fi_getinfo(version, node, nullptr, flags, hints, &found);
    return InfoHandle(result == 0 ? found : nullptr);
}

/// The entry whose provider is exactly `name`: asked for "tcp", libfabric 1.17 answers with "tcp;ofi_rxm".
const fi_info* find_exact(const fi_info* list, std::string_view name) {
    while (list != nullptr && name != list->fabric_attr->prov_name) list = list->next;
    return list;
}

std::string granted_names(const fi_info* list) {
    std::vector<std::string> names;
    for (; list != nullptr; list = list->next) {
        const std::string name = list->fabric_attr->prov_name;
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    std::string joined;
    for (const auto& name : names) joined += (joined.empty() ? "'" : ", '") + name + "'";
    return joined;
}

/// Why libfabric found nothing: it says "no data available" to everything, so the needs are added one by one.
std::string explain_absence(const std::string& provider, const std::string& host) {
    InfoHandle hints(fi_allocinfo());
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    hints->mode = ~0ULL;
    hints->domain_attr->mode = ~0ULL;
    hints->domain_attr->mr_mode =
        kMemoryModes | FI_MR_RAW | FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT | FI_MR_HMEM;
    const auto found = [&] {
        int result = 0;
        const InfoHandle list = get_info(nullptr, 0, hints.get(), result);
        return find_exact(list.get(), provider) != nullptr;
    };
    if (!found()) return "not offered here: no such device, or this libfabric was built without it";
    hints->ep_attr->type = FI_EP_RDM;
    if (!found()) return "has no reliable datagram endpoints (FI_EP_RDM)";
    hints->caps = kCaps;
    if (!found()) return "has no RMA writes on its reliable datagram endpoints";
    hints = make_hints(provider);
    if (!found()) return "requires a memory registration, context or threading mode that Lynx does not offer";
    return text("has no interface at host '", host, "'; name a local address of its device");
}

/// Why `host` is no address of this machine, or empty. fi_getinfo takes any; the tcp family would fail only
/// when an endpoint is opened, and one that is opened for trial and closed without a completion queue crashes
/// net 1.17.
std::string host_failure(const std::string& host) {
    try {
        const auto addresses = resolve("cannot use", host, 0, true);
        int error = 0;
        for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
            const Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
            if (socket && bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return {};
            error = errno;
        }
        return system_reason(error) + "; name an address of this machine";
    } catch (const ConnectionFailed& unknown) {
        return unknown.what();
    }
}

/// Opens as much as is cheap and shows that the provider is really there.
std::string trial_failure(fi_info* info) {
    const std::string name = info->fabric_attr->prov_name;
    try {
        const auto fabric = open_handle<fid_fabric>(
            "fi_fabric", name, [&](fid_fabric** f) { return fi_fabric(info->fabric_attr, f, nullptr); });
        const auto domain = open_handle<fid_domain>(
            "fi_domain", name, [&](fid_domain** d) { return fi_domain(fabric.get(), info, d, nullptr); });
        return {};
    } catch (const FabricError& error) {
        return error.what();
    }
}

/// All provider names that libfabric lists, then those that Lynx would like and that are not among them.
std::vector<ProviderInfo> listed() {
    std::vector<ProviderInfo> all;
    const auto known = [&](std::string_view name) {
        return std::ranges::any_of(all, [&](const ProviderInfo& p) { return p.name == name; });
    };
    int result = 0;
    const InfoHandle list = get_info(nullptr, 0, nullptr, result);
    for (const fi_info* info = list.get(); info != nullptr; info = info->next) {
        const char* name = info->fabric_attr->prov_name;
        if (!known(name)) all.push_back({name, version_text(info->fabric_attr->prov_version), false, {}});
    }
    for (const std::string_view name : kAutoOrder) {
        if (!known(name)) all.push_back({std::string(name), "-", false, {}});
    }
    return all;
}

std::string everything_refused(const std::string& host) {
    std::string lines;
    for (const auto& p : list_providers(host)) {
        lines += text("\n  ", p.name, ": ", p.usable ? "usable, by name" : p.reason);
    }
    return lines;
}

}  // namespace

std::uint32_t api_version() noexcept {
    const std::uint32_t ours = FI_VERSION(1, 17);
    const std::uint32_t library = fi_version();
    return FI_VERSION_LT(library, ours) ? library : ours;
}

bool ignores_host(const std::string& provider) noexcept {
    return provider == "shm" || provider == "efa";
}

InfoHandle make_hints(const std::string& provider) {
    InfoHandle hints(fi_allocinfo());
    if (!hints) throw FabricError("fi_allocinfo failed: out of memory");
    hints->caps = kCaps;
    hints->mode = kModes;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = kMemoryModes;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    return hints;
}

Candidate try_provider(const std::string& provider, const std::string& host, bool device_memory) {
    const InfoHandle hints = make_hints(provider);
    if (device_memory) {
        hints->caps |= FI_HMEM;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
    std::string node = host;
    if (provider == "shm") node = make_shm_name();
    const bool no_node = provider == "efa" || node.empty();
    int result = 0;
    const auto ask = [&](std::uint64_t op_flags) {
        hints->tx_attr->op_flags = op_flags;
        return get_info(no_node ? nullptr : node.c_str(), no_node ? 0 : FI_SOURCE, hints.get(), result);
    };
    // Whoever cannot tell that a write has landed is taken all the same; Fabric::delivery_complete() says so.
    // Not shm's: the reader then answers each write, and libfabric 1.17 crashes if the writer has closed meanwhile.
    InfoHandle list = ask(provider == "shm" ? 0 : FI_DELIVERY_COMPLETE);
    if (find_exact(list.get(), provider) == nullptr) list = ask(0);
    if (device_memory && find_exact(list.get(), provider) == nullptr) return try_provider(provider, host);
    if (!list) {
        if (result != -FI_ENODATA) return {nullptr, text("fi_getinfo failed: ", reason_of(result))};
        return {nullptr, explain_absence(provider, host)};
    }
    const fi_info* exact = find_exact(list.get(), provider);
    if (exact == nullptr) {
        std::string reason = text("libfabric grants ", granted_names(list.get()), " instead");
        if (provider == "tcp")
            reason += "; ask for 'net' or 'tcp;ofi_rxm' (libfabric before 1.18 has no 'tcp' of this kind)";
        return {nullptr, reason};
    }
    if (exact->domain_attr->cq_data_size < kTagBytes) {
        return {nullptr, text("carries ", exact->domain_attr->cq_data_size, " bytes of remote data a write; ",
                              kTagBytes, " are needed")};
    }
    InfoHandle info(fi_dupinfo(exact));
    if (!info) return {nullptr, "fi_dupinfo failed: out of memory"};
    std::string failure = ignores_host(provider) ? "" : host_failure(host);
    if (!failure.empty()) return {nullptr, text("not usable at host '", host, "': ", failure)};
    failure = trial_failure(info.get());
    if (!failure.empty()) return {nullptr, failure};
    return {std::move(info), {}};
}

InfoHandle choose_provider(const FabricOptions& options) {
    if (options.provider != "auto") {
        const std::string name = spelled_out(options.provider);
        std::string reason =
            "Lynx does not know this provider; the names are auto, net, tcp, tcp;ofi_rxm, shm, sockets, "
            "verbs, efa";
        if (is_supported(name)) {
            Candidate candidate = try_provider(name, options.host, options.device_memory);
            if (candidate.info) return std::move(candidate.info);
            reason = candidate.reason;
        }
        throw FabricError(text("fabric provider '", options.provider, "' was asked for at host '", options.host,
                               "': ", reason, ". libfabric ", fabric_version(),
                               " here has:", everything_refused(options.host)));
    }
    for (const std::string_view name : kAutoOrder) {
        Candidate candidate = try_provider(std::string(name), options.host, options.device_memory);
        if (candidate.info) return std::move(candidate.info);
    }
    throw FabricError(text("no fabric provider is usable at host '", options.host,
                           "'; name a local address, or one of the providers that work by name. libfabric ",
                           fabric_version(), " here has:", everything_refused(options.host)));
}

}  // namespace lynx::fabric

namespace lynx {

std::vector<ProviderInfo> list_providers(const std::string& host) {
    auto all = fabric::listed();
    for (auto& provider : all) {
        if (fabric::is_supported(provider.name)) {
            const auto candidate = fabric::try_provider(provider.name, host);
            provider.usable = candidate.info != nullptr;
            provider.reason = candidate.reason;
        } else {
            provider.reason = "not among the providers that Lynx supports";
        }
    }
    return all;
}

std::string fabric_version() {
    // fi_version() is the API's version; the release's own, with its last number, comes only as text.
    std::array<char, 64> release{};
    const char* found = fi_tostr_r(release.data(), release.size(), "1", FI_TYPE_VERSION);
    return found != nullptr && *found != 0 ? found : fabric::version_text(fi_version());
}

}  // namespace lynx
