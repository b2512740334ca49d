// What a key opens: one region, whole and no more, until it is destroyed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "fabric/providers_for_tests.hpp"
#include "fabric/recorder.hpp"
#include "lynx/buffer.hpp"

namespace lynx::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;
constexpr std::size_t kBytes = 64 << 10;

struct Writer {
    explicit Writer(const std::string& provider, const std::vector<std::byte>& to)
        : fabric({.provider = provider}),
          buffer(kBytes),
          region(fabric, buffer.span(), MemoryAccess::kLocal),
          endpoint(fabric, calls, {.post_deadline = 500ms}),
          peer(endpoint.add_peer(to)) {
        std::ranges::fill(buffer.span(), std::byte{7});
    }

    void write(const RemoteRegion& to, std::size_t offset, std::size_t bytes, std::uint32_t tag) {
        calls.push({.source = buffer.span().first(bytes),
                    .descriptor = region.descriptor(),
                    .peer = peer,
                    .remote_address = to.address + offset,
                    .remote_key = to.key,
                    .tag = tag,
                    .cookie = tag});
        endpoint.wake();
    }

    Fabric fabric;
    Buffer buffer;
    MemoryRegion region;
    Recorder calls;
    Endpoint endpoint;
    PeerId peer;
};

struct Reader {
    explicit Reader(const std::string& provider)
        : fabric({.provider = provider}),
          buffer(4 * kBytes),
          good(fabric, buffer.span().first(kBytes)),
          slot(std::in_place, fabric, buffer.span().subspan(2 * kBytes, kBytes)),
          endpoint(fabric, calls) {}

    /// Nothing outside of `good`.
    [[nodiscard]] bool untouched() const {
        return std::ranges::all_of(buffer.span().subspan(kBytes), [](auto b) { return b == std::byte{0}; });
    }

    Fabric fabric;
    Buffer buffer;
    MemoryRegion good;
    std::optional<MemoryRegion> slot;
    Recorder calls;
    Endpoint endpoint;
};

/// Writes until one has arrived: the provider may need a new link, and lose a write or two before it notices.
bool gets_through(Writer& writer, Reader& reader) {
    const auto before = reader.calls.arrived();
    for (std::uint32_t i = 0; i < 10; ++i) {
        writer.write(reader.good.remote(), 0, 1000, 100 + i);
        if (reader.calls.wait_arrivals(before + 1, 2s)) return true;
    }
    return false;
}

enum class Wrong { kPastTheEnd, kUnknownKey, kRevokedKey };

class WithWrongKeys : public ::testing::TestWithParam<std::tuple<std::string, Wrong>> {
   protected:
    void SetUp() override {
        const std::string reason = why_not(std::get<0>(GetParam()));
        if (!reason.empty()) GTEST_SKIP() << std::get<0>(GetParam()) << ": " << reason;
    }
};

TEST_P(WithWrongKeys, NothingLandsTheWriterIsToldAndOtherRegionsGoOn) {
    const auto& [provider, wrong] = GetParam();
    Reader reader(provider);
    Writer writer(provider, reader.endpoint.address());
    writer.write(reader.good.remote(), 0, 1000, 1);
    ASSERT_TRUE(reader.calls.wait_arrivals(1, kPatience));
    ASSERT_TRUE(writer.calls.wait_done(1, kPatience));

    RemoteRegion to = reader.slot->remote();
    if (wrong == Wrong::kUnknownKey) to.key ^= 0x5555;
    if (wrong == Wrong::kRevokedKey) reader.slot.reset();
    writer.write(to, wrong == Wrong::kPastTheEnd ? kBytes - 100 : 0, 20'000, 2);
    ASSERT_TRUE(writer.calls.wait_failures(1, kPatience));
    const auto failure = writer.calls.failures()[0];
    EXPECT_TRUE(failure.type == "PeerLost" || failure.type == "Timeout") << failure.type << ": " << failure.message;
    EXPECT_NE(failure.message.find("tag 2"), std::string::npos) << failure.message;
    EXPECT_EQ(reader.calls.arrivals().count(2), 0u);

    if (provider == "shm") {
        // The link is spent for this writer, as docs/fabric.md says; another endpoint has one of its own.
        Writer another(provider, reader.endpoint.address());
        EXPECT_TRUE(gets_through(another, reader));
    } else {
        EXPECT_TRUE(gets_through(writer, reader));
    }
    EXPECT_TRUE(reader.untouched());
}

using WithSlots = EachProvider;

TEST_P(WithSlots, EachSlotInTurnHasAKeyOfItsOwnWithinTheSameMemory) {
    Reader reader(GetParam());
    Writer writer(GetParam(), reader.endpoint.address());
    std::uint64_t last_key = reader.slot->remote().key;
    for (std::uint32_t i = 0; i < 200; ++i) {
        reader.slot.reset();
        reader.slot.emplace(reader.fabric, reader.buffer.span().subspan(2 * kBytes, kBytes));
        EXPECT_NE(reader.slot->remote().key, last_key);
        last_key = reader.slot->remote().key;
        writer.write(reader.slot->remote(), i * 100, 100, i);
        ASSERT_TRUE(reader.calls.wait_arrivals(i + 1, kPatience));
    }
    const auto slot = reader.buffer.span().subspan(2 * kBytes, kBytes);
    EXPECT_TRUE(std::ranges::all_of(slot.first(20'000), [](auto b) { return b == std::byte{7}; }));
    EXPECT_TRUE(std::ranges::all_of(slot.subspan(20'000), [](auto b) { return b == std::byte{0}; }));
}

TEST_P(WithSlots, ALocalRegionTellsNoKey) {
    const Reader reader(GetParam());
    const Writer writer(GetParam(), reader.endpoint.address());
    EXPECT_EQ(writer.region.remote().key, 0u);
    EXPECT_EQ(writer.region.remote().bytes, 0u);
    EXPECT_EQ(writer.region.memory().size(), kBytes);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, Wrong>>& info) {
    constexpr std::array<const char*, 3> kNames = {"past_the_end", "unknown_key", "revoked_key"};
    std::string name = std::get<0>(info.param);
    std::ranges::replace(name, ';', '_');
    return name + "_" + kNames.at(static_cast<std::size_t>(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(MemoryRegion, WithWrongKeys,
                         ::testing::Combine(::testing::ValuesIn(tested_providers()),
                                            ::testing::Values(Wrong::kPastTheEnd, Wrong::kUnknownKey,
                                                              Wrong::kRevokedKey)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MemoryRegion, WithSlots, ::testing::ValuesIn(tested_providers()), provider_test_name);

}  // namespace
}  // namespace lynx::testing
