// Many requests over one connection, many peers at one node, and more of both than the arena has room for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fabric/providers_for_tests.hpp"
#include "lynx/error.hpp"
#include "lynx/slot_layout.hpp"
#include "stream/arrival_tag.hpp"
#include "stream/cache.hpp"
#include "stream/links.hpp"
#include "stream/node_impl.hpp"

namespace lynx::testing {
namespace {

using namespace std::chrono_literals;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

// What a process or a system runs out of.
struct Held {
    std::size_t descriptors = 0, threads = 0, slots = 0;

    explicit Held(const Node& node) {
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++descriptors;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++threads;
        for (std::uint32_t slot = 0; slot < ArrivalTag::kMaxSlots; ++slot)
            if (node.impl()->slots.find(slot)) ++slots;
    }
};

// Sockets of this network, of any state: a connection that was closed stays for a minute (TIME_WAIT).
std::size_t tcp_sockets() {
    std::ifstream table("/proc/self/net/tcp");
    std::size_t lines = 0;
    for (std::string line; std::getline(table, line);) ++lines;
    return lines;
}

// One request from beginning to end, with a thread at each side as in two processes.
void transfer(Link& link, TestCache& cache, const Manifest& manifest, const SenderOptions& options = {}) {
    auto sending = std::async(std::launch::async, [&] {
        auto sender = link.at_prefill->offer(manifest, soon(), options);
        cache.put_all(sender);
        return link.at_prefill->finish(sender, soon());
    });
    auto receiver = link.at_decode->accept_offer(soon());
    ASSERT_TRUE(receiver);
    EXPECT_TRUE(receiver->wait(manifest.parts - 1u, soon()));
    EXPECT_EQ(receiver->manifest().request_id, manifest.request_id);
    link.at_decode->finish(*receiver);
    EXPECT_TRUE(sending.get());
}

class ManyPeers : public EachProvider {};

TEST_P(ManyPeers, ThousandsOfRequestsInTurnOpenNothingAndLeaveNothing) {
    const Node prefill = node_of(GetParam()), decode = node_of(GetParam());
    Link link = connect(prefill, decode);
    TestCache cache(1, 1, 16, 64);
    const std::uint64_t requests = number_from_environment("LYNX_TEST_REQUESTS", 2000);
    std::optional<Held> before;
    std::size_t sockets = 0;
    std::uint64_t done = 0;
    const auto begin = Clock::now();
    for (std::uint64_t id = 1; id <= requests; ++id) {
        if (id == 20) before.emplace(decode), sockets = tcp_sockets();  // what is opened once, lazily, is open by now
        transfer(link, cache, cache.manifest(id));
        if (HasFailure()) break;
        ++done;
    }
    ASSERT_EQ(done, requests);
    EXPECT_LT(Clock::now() - begin, requests * 10ms) << "2,000 take less than 20 s";
    EXPECT_TRUE(becomes_free(decode));
    EXPECT_TRUE(becomes_free(prefill));
    const Held after(decode);
    EXPECT_EQ(after.descriptors, before->descriptors);
    EXPECT_LE(after.threads, before->threads);
    EXPECT_EQ(after.slots, 0u);
    EXPECT_LT(tcp_sockets(), sockets + requests / 2) << "other tests may open some; that many would be one a request";
}

TEST_P(ManyPeers, SeveralPrefillNodesSendToOneDecodeNodeAtOnce) {
    const Node decode = node_of(GetParam(), 64u << 20);
    std::vector<Node> prefill;
    std::vector<Link> links;
    for (int i = 0; i < 4; ++i) links.push_back(connect(prefill.emplace_back(node_of(GetParam())), decode));
    TestCache cache(4, 2, 300, 64);
    // The same number at each of them: it is the connection's own.
    std::vector<std::pair<PlaneSender, PlaneReceiver>> open_requests;
    for (Link& link : links) open_requests.push_back(open(link, cache.manifest(7)));
    std::vector<std::future<void>> putting;
    for (auto& [sender, receiver] : open_requests)
        putting.push_back(std::async(std::launch::async, [&cache, s = &sender] { cache.put_all(*s); }));
    for (auto& [sender, receiver] : open_requests) {
        ASSERT_TRUE(receiver.wait(1, soon()));
        EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
    }
    for (auto& put : putting) put.get();
    // One of them leaves: the others do not notice.
    links[0].at_prefill.reset();
    TestCache small(1, 1, 16, 64);
    for (std::size_t i = 1; i < links.size(); ++i) transfer(links[i], small, small.manifest(8));
}

TEST_P(ManyPeers, OnePrefillNodeSendsToSeveralDecodeNodesAtOnce) {
    const Node prefill = node_of(GetParam(), 64u << 20);
    std::vector<Node> decode;
    std::vector<Link> links;
    for (int i = 0; i < 4; ++i) links.push_back(connect(prefill, decode.emplace_back(node_of(GetParam()))));
    TestCache cache(4, 2, 300, 64);
    std::vector<std::pair<PlaneSender, PlaneReceiver>> open_requests;
    for (Link& link : links) open_requests.push_back(open(link, cache.manifest(7)));
    for (auto& [sender, receiver] : open_requests) cache.put_all(sender);
    for (auto& [sender, receiver] : open_requests) {
        ASSERT_TRUE(receiver.wait(1, soon()));
        EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
    }
    links[0].at_decode.reset();
    TestCache small(1, 1, 16, 64);
    for (std::size_t i = 1; i < links.size(); ++i) transfer(links[i], small, small.manifest(8));
}

TEST_P(ManyPeers, RequestsBeyondTheArenaWaitAndAllAreServed) {
    TestCache cache(2, 2, 200, 64);
    const std::size_t room = 3 * SlotLayout(cache.manifest(1)).bytes();  // two fit, with what pages take
    const Node decode = node_of(GetParam(), room);
    std::vector<Node> prefill;
    std::vector<Link> links;
    for (int i = 0; i < 3; ++i) links.push_back(connect(prefill.emplace_back(node_of(GetParam(), room)), decode));
    std::vector<std::future<void>> serving;
    for (Link& link : links)
        for (std::uint64_t id = 1; id <= 5; ++id) {
            serving.push_back(std::async(std::launch::async, [&cache, &link, id] {
                auto sender = link.at_prefill->offer(cache.manifest(id), soon());
                cache.put_all(sender);
                EXPECT_TRUE(link.at_prefill->finish(sender, soon()));
            }));
            serving.push_back(std::async(std::launch::async, [&link] {
                auto receiver = link.at_decode->accept_offer(soon());
                ASSERT_TRUE(receiver);
                EXPECT_TRUE(receiver->wait(1, soon()));
                link.at_decode->finish(*receiver);
            }));
        }
    for (auto& done : serving) EXPECT_NO_THROW(done.get());
    EXPECT_TRUE(becomes_free(decode));
    for (const Node& node : prefill) EXPECT_TRUE(becomes_free(node));
}

TEST_P(ManyPeers, AnOfferWithoutRoomKeepsItsTurnOverSeveralCalls) {
    TestCache cache(2, 2, 200, 64), small(1, 1, 16, 64);
    const std::size_t bytes = SlotLayout(cache.manifest(1)).bytes();
    const Node prefill = node_of(GetParam());
    const Node decode = node_of(GetParam(), bytes + bytes / 2);
    Link first = connect(prefill, decode), second = connect(prefill, decode);
    std::optional<std::pair<PlaneSender, PlaneReceiver>> holds = open(first, cache.manifest(1));

    auto large = std::async(std::launch::async, [&] { return first.at_prefill->offer(cache.manifest(2), soon()); });
    EXPECT_FALSE(first.at_decode->accept_offer(Deadline::after(300ms))) << "no room";
    auto waiting = std::async(std::launch::async, [&] { return first.at_decode->accept_offer(soon()); });
    std::this_thread::sleep_for(100ms);
    auto late = std::async(std::launch::async, [&] { return second.at_prefill->offer(small.manifest(3), soon()); });
    EXPECT_FALSE(second.at_decode->accept_offer(Deadline::after(200ms)))
        << "it would fit, but has come after one that waits";

    auto& [sender, receiver] = *holds;
    cache.put_all(sender);
    ASSERT_TRUE(receiver.wait(1, soon()));
    first.at_decode->finish(receiver);
    EXPECT_TRUE(first.at_prefill->finish(sender, soon()));
    holds.reset();
    EXPECT_EQ(waiting.get().value().manifest().request_id, 2u);
    EXPECT_EQ(second.at_decode->accept_offer(soon()).value().manifest().request_id, 3u);
    (void)large.get();
    (void)late.get();
}

TEST_P(ManyPeers, AnOfferThatWaitsForRoomHearsOfTheEndOfItsPeer) {
    TestCache cache(2, 2, 200, 64);
    const std::size_t bytes = SlotLayout(cache.manifest(1)).bytes();
    const Node prefill = node_of(GetParam());
    const Node decode = node_of(GetParam(), bytes + bytes / 2);
    Link first = connect(prefill, decode), second = connect(prefill, decode);
    const auto holds = open(first, cache.manifest(1));
    auto offering = std::async(std::launch::async, [&] { return second.at_prefill->offer(cache.manifest(1), soon()); });
    auto waiting = std::async(std::launch::async, [&] { return second.at_decode->accept_offer(soon()); });
    std::this_thread::sleep_for(100ms);
    const auto begin = Clock::now();
    second.at_prefill->close();
    EXPECT_THROW((void)offering.get(), Cancelled);
    EXPECT_THROW((void)waiting.get(), PeerLost);
    EXPECT_LT(Clock::now() - begin, 2s);
}

TEST_P(ManyPeers, ASenderWithoutRoomWaitsForItBeforeItOffers) {
    TestCache cache(2, 2, 200, 64);
    const std::size_t bytes = SlotLayout(cache.manifest(1)).bytes();
    const Node prefill = node_of(GetParam(), bytes + bytes / 2);
    const Node decode = node_of(GetParam());
    Link link = connect(prefill, decode);
    auto [sender, receiver] = open(link, cache.manifest(1));
    EXPECT_THROW((void)link.at_prefill->offer(cache.manifest(2), Deadline::after(100ms)), Timeout);
    EXPECT_FALSE(link.at_decode->accept_offer(Deadline::after(50ms))) << "the other side was not bothered";
    TestCache huge(2, 2, 2000, 64);
    EXPECT_THROW((void)link.at_prefill->offer(huge.manifest(3), soon()), ArenaFull) << "never fits: at once";

    auto offering = std::async(std::launch::async, [&] { return link.at_prefill->offer(cache.manifest(4), soon()); });
    cache.put_all(sender);
    ASSERT_TRUE(receiver.wait(1, soon()));
    link.at_decode->finish(receiver);
    EXPECT_TRUE(link.at_prefill->finish(sender, soon()));
    {
        const PlaneSender gone = std::move(sender);
    }
    EXPECT_TRUE(link.at_decode->accept_offer(soon()));
    (void)offering.get();
}

// A store of transfers refused the first one after some idle seconds; ours has to hold a link for as long as it is up.
TEST_P(ManyPeers, ATransferAfterIdleSecondsWorksLikeTheFirst) {
    const Node prefill = node_of(GetParam()), decode = node_of(GetParam());
    Link link = connect(prefill, decode);
    TestCache cache(1, 1, 300, 64);
    transfer(link, cache, cache.manifest(1));
    std::this_thread::sleep_for(std::chrono::seconds(number_from_environment("LYNX_TEST_IDLE_SECONDS", 3)));
    transfer(link, cache, cache.manifest(2));
}

TEST_P(ManyPeers, ANewConnectionOfTheSameNodesWorksAfterOneHasEnded) {
    const Node prefill = node_of(GetParam()), decode = node_of(GetParam());
    TestCache cache(4, 2, 300, 64);
    for (std::uint64_t round = 0; round < 3; ++round) {
        Link link = connect(prefill, decode);
        transfer(link, cache, cache.manifest(1));
        // In the middle of another one; its slot stays taken, since nobody is left to say what was posted.
        auto [sender, receiver] = open(link, cache.manifest(2), {.bytes_per_second = 200'000});
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(0, 0, soon()));
        link.at_prefill.reset();
        EXPECT_THROW((void)receiver.wait(1, soon()), PeerLost);
        EXPECT_TRUE(link.at_decode->lost());
        EXPECT_THROW((void)link.at_decode->accept_offer(soon()), PeerLost);
    }
}

TEST_P(ManyPeers, AbortedRequestsOfEveryKindLeaveNothingOnEitherSide) {
    const Node prefill = node_of(GetParam()), decode = node_of(GetParam());
    Link link = connect(prefill, decode);
    TestCache cache(2, 2, 100, 64);
    for (std::uint64_t id = 1; id <= 60; ++id) {
        auto [sender, receiver] = open(link, cache.manifest(id));
        if (id % 2 == 0) cache.put_all(sender);
        switch (id % 3) {
            case 0: EXPECT_TRUE(link.at_decode->cancel(receiver, "enough", soon())); break;
            case 1:
                EXPECT_TRUE(link.at_prefill->cancel(sender, "enough", soon()));
                try {
                    EXPECT_TRUE(receiver.wait(1, soon()));  // or all of it had come
                } catch (const Cancelled&) {
                }
                break;
            default: link.at_decode->finish(receiver);  // whether or not all of it has come
        }
        if (id % 3 != 1) {
            try {
                EXPECT_TRUE(link.at_prefill->finish(sender, soon()));
            } catch (const Cancelled&) {
            }
        }
    }
    EXPECT_TRUE(becomes_free(decode));
    EXPECT_TRUE(becomes_free(prefill));
    transfer(link, cache, cache.manifest(1));
}

// No lease runs out, and no other request comes into a slot that is still read.
TEST_P(ManyPeers, AReceiverKeepsItsBytesWhileOthersComeAndGo) {
    TestCache cache(2, 2, 200, 64), other(2, 2, 150, 64);
    const std::size_t room =
        SlotLayout(cache.manifest(1, Coding::kRaw, 1)).bytes() + 2 * SlotLayout(other.manifest(1)).bytes();
    const Node prefill = node_of(GetParam()), decode = node_of(GetParam(), room);
    Link link = connect(prefill, decode);
    auto [sender, receiver] = open(link, cache.manifest(1, Coding::kRaw, 1));
    cache.put_all(sender);
    ASSERT_TRUE(receiver.wait(0, soon()));
    link.at_decode->finish(receiver);
    EXPECT_TRUE(link.at_prefill->finish(sender, soon()));
    for (std::uint64_t id = 2; id < 60; ++id) {
        transfer(link, other, other.manifest(id));
        if (HasFailure()) return;
    }
    EXPECT_EQ(cache.error_of(receiver, 0), 0.0F);
}

TEST_P(ManyPeers, SlotNumbersThatAreAllTakenAreRefusedInWordsAndOneThatIsFreeWorks) {
    const Node prefill = node_of(GetParam()), decode = node_of(GetParam(), 32u << 20);
    Link link = connect(prefill, decode);
    TestCache cache(1, 1, 16, 64);
    std::vector<PlaneReceiver> all;
    for (std::uint32_t i = 0; i < ArrivalTag::kMaxSlots; ++i) {
        all.emplace_back(decode, cache.manifest(i));
        ASSERT_TRUE(all.back().settle(0, soon()));  // nobody is told of it
    }
    auto offering = std::async(std::launch::async, [&]() -> std::string {
        try {
            (void)link.at_prefill->offer(cache.manifest(1), soon());
        } catch (const ProtocolError& e) {
            return e.what();
        }
        return "granted";
    });
    EXPECT_THROW((void)link.at_decode->accept_offer(soon()), ArenaFull);
    EXPECT_NE(offering.get().find("all 1024 are taken"), std::string::npos);
    all.erase(all.begin() + 7);
    transfer(link, cache, cache.manifest(2));
    all.clear();
    EXPECT_TRUE(becomes_free(decode));
}

TEST(Writes, AreFewAndLarge) {
    const TestCache shape(1, 1, 1, 8);  // for its manifest alone
    Manifest manifest = shape.manifest(1);
    manifest.tensors.clear();
    for (std::uint32_t layer = 0; layer < 32; ++layer)
        for (const TensorRole role : kRoles)
            manifest.tensors.push_back({layer, role, {.heads = 8, .tokens = 2048, .head_dim = 128}});
    manifest.chunk_bytes = kDefaultChunkBytes;
    const SlotLayout layout(manifest);
    EXPECT_GT(layout.bytes(), 130u << 20);
    EXPECT_LE(layout.chunks(), layout.bytes() / kDefaultChunkBytes + 64 * manifest.parts)
        << "one write a chunk, and what is left of each part";
}

INSTANTIATE_TEST_SUITE_P(Providers, ManyPeers, ::testing::ValuesIn(tested_providers()), provider_test_name);

}  // namespace
}  // namespace lynx::testing
