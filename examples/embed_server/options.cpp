#include "options.hpp"

#include <charconv>
#include <limits>
#include <string_view>
#include <vector>

const char* const kUsage =
    "embed_server                             both roles in two processes, on this machine\n"
    "embed_server prefill --listen HOST:PORT  make a cache, serve it to one peer, exit (port 0: a free one)\n"
    "embed_server decode --connect HOST:PORT  receive it, decode it, check it, print the timeline\n"
    "\n"
    "  --provider P         libfabric provider, the same on both sides (default auto)\n"
    "  --own-host HOST      decode: this machine's address, as the prefill machine reaches it (default 127.0.0.1)\n"
    "  --layers N --tokens N --heads N --head-dim N   prefill: the cache (default 8, 1024, 4, 64)\n"
    "  --bandwidth BYTES    prefill: at most so many bytes a second (default 25000000; 0: no limit)\n";

namespace {

template <class Number>
Number parse_number(std::string_view flag, std::string_view value, Number least, Number most) {
    Number number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least || number > most)
        throw UsageError(std::string(flag) + " " + std::string(value) + ": a number from " + std::to_string(least) +
                         " to " + std::to_string(most) + " is expected");
    return number;
}

Address parse_address(std::string_view flag, std::string_view value, std::uint16_t least_port) {
    const auto colon = value.rfind(':');
    if (colon == std::string_view::npos || colon == 0)
        throw UsageError(std::string(flag) + " " + std::string(value) + ": HOST:PORT is expected");
    std::string_view host = value.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    constexpr std::uint16_t kMostPort = std::numeric_limits<std::uint16_t>::max();
    return {.host = std::string(host), .port = parse_number(flag, value.substr(colon + 1), least_port, kMostPort)};
}

}  // namespace

Options parse_options(int argc, char** argv) {
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    Options options;
    bool has_address = false;
    std::size_t i = 0;
    if (!words.empty() && words[0] == "prefill") {
        options.role = Role::kPrefill;
        i = 1;
    } else if (!words.empty() && words[0] == "decode") {
        options.role = Role::kDecode;
        i = 1;
    }
    const bool prefills = options.role != Role::kDecode;
    for (; i < words.size(); i += 2) {
        const std::string_view flag = words[i];
        if (flag == "--help" || flag == "-h") return {.role = Role::kHelp};
        if (i + 1 == words.size()) throw UsageError(std::string(flag) + ": no such flag, or its value is missing");
        const std::string_view value = words[i + 1];
        if (flag == "--listen" && options.role == Role::kPrefill) {
            options.address = parse_address(flag, value, 0);
            options.own_host = options.address.host;
            has_address = true;
        } else if (flag == "--connect" && options.role == Role::kDecode) {
            options.address = parse_address(flag, value, 1);
            has_address = true;
        } else if (flag == "--own-host" && options.role == Role::kDecode) {
            options.own_host = value;
        } else if (flag == "--provider") {
            options.provider = value;
        } else if (flag == "--layers" && prefills) {
            options.shape.layers = parse_number<std::uint32_t>(flag, value, 1, kMostLayers);
        } else if (flag == "--tokens" && prefills) {
            options.shape.tokens = parse_number<std::uint32_t>(flag, value, 1, lynx::kMaxTokens);
        } else if (flag == "--heads" && prefills) {
            options.shape.heads = parse_number<std::uint32_t>(flag, value, 1, lynx::kMaxHeads);
        } else if (flag == "--head-dim" && prefills) {
            // Lynx itself says what a head_dim has to be: the manifest is validated before it is sent.
            options.shape.head_dim = parse_number<std::uint32_t>(flag, value, 1, 1u << 20);
        } else if (flag == "--bandwidth" && prefills) {
            options.bytes_per_second = parse_number<std::uint64_t>(flag, value, 0, std::uint64_t{1} << 50);
        } else {
            throw UsageError(std::string(flag) + ": no such flag of this role");
        }
    }
    if (options.role == Role::kPrefill && !has_address) throw UsageError("prefill: --listen HOST:PORT is missing");
    if (options.role == Role::kDecode && !has_address) throw UsageError("decode: --connect HOST:PORT is missing");
    return options;
}
