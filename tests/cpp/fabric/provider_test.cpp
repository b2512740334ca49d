#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "lynx/error.hpp"
#include "lynx/fabric.hpp"

namespace lynx {
namespace {

std::string refusal_of(const FabricOptions& options) {
    try {
        const Fabric fabric(options);
        return "";
    } catch (const FabricError& error) {
        return error.what();
    }
}

bool contains(const std::string& all, const std::string& part) {
    return all.find(part) != std::string::npos;
}

const ProviderInfo* find(const std::vector<ProviderInfo>& all, const std::string& name) {
    const auto it = std::ranges::find(all, name, &ProviderInfo::name);
    return it != all.end() ? &*it : nullptr;
}

TEST(Provider, ListsEachOnceWithAReasonForThoseThatAreNotUsable) {
    const auto all = list_providers();
    for (const auto& provider : all) {
        EXPECT_EQ(std::ranges::count(all, provider.name, &ProviderInfo::name), 1) << provider.name;
        EXPECT_NE(provider.usable, !provider.reason.empty()) << provider.name << ": " << provider.reason;
    }
    for (const char* wanted : {"verbs;ofi_rxm", "efa", "tcp;ofi_rxm", "shm"}) EXPECT_NE(find(all, wanted), nullptr);
    EXPECT_TRUE(find(all, "tcp;ofi_rxm")->usable) << find(all, "tcp;ofi_rxm")->reason;
}

TEST(Provider, TellsTheLibrarysVersionWithAllItsNumbers) {
    EXPECT_EQ(std::ranges::count(fabric_version(), '.'), 2) << fabric_version();
}

TEST(Provider, AutoTakesTheFirstUsableOneOfItsOrderAndNeverShm) {
    const auto all = list_providers();
    const Fabric fabric;
    for (const char* name : {"verbs;ofi_rxm", "efa", "net", "tcp", "tcp;ofi_rxm"}) {
        const auto* provider = find(all, name);
        if (provider != nullptr && provider->usable) {
            EXPECT_EQ(fabric.provider(), name);
            return;
        }
    }
    FAIL() << "auto took " << fabric.provider() << ", which is in no order";
}

TEST(Provider, IsTheOneAskedForOrAnErrorThatSaysWhichOnesToAskFor) {
    const auto all = list_providers();
    const auto* tcp = find(all, "tcp");
    ASSERT_NE(tcp, nullptr);
    if (tcp->usable) {
        EXPECT_EQ(Fabric({.provider = "tcp"}).provider(), "tcp");
    } else {
        const std::string refusal = refusal_of({.provider = "tcp"});
        EXPECT_TRUE(contains(refusal, "grants 'tcp;ofi_rxm' instead")) << refusal;
        EXPECT_TRUE(contains(refusal, "ask for 'net' or 'tcp;ofi_rxm'")) << refusal;
    }
}

TEST(Provider, UnknownNamesAreRefusedWithTheKnownOnes) {
    const std::string refusal = refusal_of({.provider = "carrier-pigeon"});
    EXPECT_TRUE(contains(refusal, "'carrier-pigeon'")) << refusal;
    EXPECT_TRUE(contains(refusal, "the names are auto, net")) << refusal;
}

TEST(Provider, ARefusalListsEveryProviderFoundAndWhyEachWasRefused) {
    // An address of the documentation range: nobody's own.
    const std::string refusal = refusal_of({.provider = "auto", .host = "203.0.113.7"});
    ASSERT_FALSE(refusal.empty());
    EXPECT_TRUE(contains(refusal, "203.0.113.7")) << refusal;
    for (const auto& provider : list_providers("203.0.113.7")) {
        EXPECT_TRUE(contains(refusal, "\n  " + provider.name + ": ")) << provider.name << " is not in: " << refusal;
        if (!provider.usable) {
            EXPECT_TRUE(contains(refusal, provider.reason.substr(0, 20))) << refusal;
        }
    }
}

TEST(Provider, VerbsByNameMeansItsReliableDatagramsAndSaysWhatIsMissing) {
    const auto all = list_providers();
    if (find(all, "verbs;ofi_rxm")->usable) GTEST_SKIP() << "there is a verbs device here";
    const std::string refusal = refusal_of({.provider = "verbs"});
    EXPECT_TRUE(contains(refusal, "'verbs'")) << refusal;
    EXPECT_TRUE(contains(refusal, "no such device")) << refusal;
}

}  // namespace
}  // namespace lynx
