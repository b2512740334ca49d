// The providers that every endpoint test runs on, and why one is skipped here.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lynx/fabric.hpp"

namespace lynx::testing {

inline std::vector<std::string> tested_providers() {
    return {"net", "tcp", "tcp;ofi_rxm", "shm"};
}

inline std::string provider_test_name(const ::testing::TestParamInfo<std::string>& info) {
    std::string name = info.param;
    std::ranges::replace(name, ';', '_');
    return name;
}

/// Empty if `provider` is usable here.
inline std::string why_not(const std::string& provider) {
    static const auto all = list_providers();
    for (const auto& p : all) {
        if (p.name == provider) return p.usable ? "" : p.reason;
    }
    return "libfabric does not list it";
}

/// How many files in /dev/shm the shm endpoints of a process hold. (Other tests may run at the same time.)
inline int shm_files(pid_t owner) {
    std::string part = "-";
    part += std::to_string(owner);
    part += '-';
    int count = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("lynx-") && name.find(part) != std::string::npos) ++count;
    }
    return count;
}

class EachProvider : public ::testing::TestWithParam<std::string> {
   protected:
    void SetUp() override {
        const std::string reason = why_not(GetParam());
        if (!reason.empty()) GTEST_SKIP() << GetParam() << ": " << reason;
    }
};

}  // namespace lynx::testing
