// What the command line says.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "synthetic_cache.hpp"

enum class Role : std::uint8_t { kBoth, kPrefill, kDecode, kHelp };

struct Address {
    std::string host = "127.0.0.1";
    std::uint16_t port = 0;
};

struct Options {
    Role role = Role::kBoth;
    /// Where prefill listens (port 0: any free one), or decode connects.
    Address address;
    /// This machine's own address, at which the other side's writes arrive.
    std::string own_host = "127.0.0.1";
    std::string provider = "auto";
    CacheShape shape;
    /// So slow by default that the timeline can be followed by eye; 0: no limit.
    std::uint64_t bytes_per_second = 25'000'000;
};

/// The command line cannot be understood; the message says why.
class UsageError : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
};

extern const char* const kUsage;

/// Throws UsageError.
[[nodiscard]] Options parse_options(int argc, char** argv);
