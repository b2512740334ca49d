#include "fabric/shm_name.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "core/text.hpp"

namespace lynx::fabric {
namespace {

constexpr const char* kFolder = "/dev/shm";
constexpr std::string_view kPrefix = "lynx";

/// The number of this process's pid namespace, so that a pid is compared only where it means something.
std::string pid_namespace() {
    std::error_code error;
    const std::string link = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
    std::string digits;
    std::ranges::copy_if(link, std::back_inserter(digits), [](char c) { return c >= '0' && c <= '9'; });
    return digits.empty() ? "0" : digits;
}

/// When the process started, in clock ticks since boot (field 22 of /proc/<pid>/stat), or nothing if there is
/// none.
std::optional<std::string> start_time(const std::string& pid) {
    std::ifstream file(text("/proc/", pid, "/stat"));
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    // The command's name, in parentheses, may hold anything; fields are counted after it.
    std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
    std::string field;
    for (int i = 3; i <= 22; ++i) rest >> field;
    return field;
}

std::vector<std::string> split(std::string_view name) {
    std::vector<std::string> parts(1);
    for (const char c : name) {
        if (c == ':') break;  // what the provider appended
        if (c == '-') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

bool is_stale(std::string_view name, const std::string& own_namespace) {
    const auto parts = split(name);
    if (parts.size() != 5 || parts[0] != kPrefix || parts[1] != own_namespace) return false;
    int pid = 0;
    const auto [end, bad] = std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), pid);
    if (bad != std::errc() || end != parts[2].data() + parts[2].size()) return false;
    // Without /proc nothing can be said of anybody.
    return start_time("self").has_value() && start_time(parts[2]) != parts[3];
}

}  // namespace

std::string make_shm_name() {
    std::random_device random;
    const auto pid = std::to_string(getpid());
    return text(kPrefix, "-", pid_namespace(), "-", pid, "-", start_time(pid).value_or("0"), "-", random());
}

void remove_stale_shm_files() noexcept {
    try {
        const std::string own_namespace = pid_namespace();
        for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
            // Another user's file fails to unlink (the folder is sticky), which is as it should be.
            if (is_stale(entry.path().filename().string(), own_namespace)) unlink(entry.path().c_str());
        }
    } catch (const std::exception&) {
        // No such folder, or no permission: then there is nothing to tidy.
    }
}

void remove_shm_file(const std::vector<std::byte>& address) noexcept {
    constexpr std::string_view kScheme = "fi_shm://";
    std::string_view name(reinterpret_cast<const char*>(address.data()), address.size());
    name = name.substr(0, name.find('\0'));
    if (!name.starts_with(kScheme)) return;
    name.remove_prefix(kScheme.size());
    if (name.starts_with(kPrefix)) unlink(text(kFolder, "/", name).c_str());
}

}  // namespace lynx::fabric
