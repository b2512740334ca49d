// Whole transfers between two nodes over each provider, with control connections on loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <future>
#include <thread>

#include "libfabric_leaks.hpp"
#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "stream/cache.hpp"
#include "stream/node_impl.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

Deadline soon() {
    return Deadline::after(10s);
}

std::vector<std::string> usable_providers() {
    std::vector<std::string> names;
    for (const ProviderInfo& p : list_providers())
        if (p.usable && p.name != "sockets") names.push_back(p.name);
    return names;
}

// Both nodes' threads may hold on to an ended transfer for an instant.
bool becomes_free(const Node& node) {
    for (int i = 0; i < 200 && node.arena_free_bytes() != node.arena_bytes(); ++i) std::this_thread::sleep_for(10ms);
    return node.arena_free_bytes() == node.arena_bytes();
}

// Two connected nodes in one process.
struct Pair {
    explicit Pair(const std::string& provider, std::size_t receiver_arena = 64u << 20)
        : prefill({.fabric = {provider, "127.0.0.1"}, .arena_bytes = 64u << 20}),
          decode({.fabric = {provider, "127.0.0.1"}, .arena_bytes = receiver_arena}),
          listener(prefill, "127.0.0.1", 0) {
        std::thread connecting(
            [&] { to_prefill.emplace(Peer::connect(decode, "127.0.0.1", listener.port(), soon())); });
        to_decode = listener.accept(soon());
        connecting.join();
    }

    // Offers on one side, accepts on the other.
    std::pair<PlaneSender, PlaneReceiver> open(const Manifest& manifest, const SenderOptions& options = {},
                                               const ReceiverOptions& receiving = {}) {
        std::optional<PlaneSender> sender;
        std::thread offering([&] { sender.emplace(to_decode->offer(manifest, soon(), options)); });
        auto receiver = to_prefill->accept_offer(soon(), receiving);
        offering.join();
        return {std::move(sender.value()), std::move(receiver.value())};
    }

    Node prefill, decode;
    Listener listener;
    std::optional<Peer> to_decode, to_prefill;
};

class Transfer : public testing::TestWithParam<std::string> {};

TEST_P(Transfer, BringsTheAnchorThenTheResidualAndGivesTheSlotBack) {
    Pair pair(GetParam());
    TestCache cache(4, 2, 300, 64);
    for (std::uint64_t request = 1; request <= 5; ++request) {
        auto [sender, receiver] = pair.open(cache.manifest(request));
        EXPECT_EQ(receiver.manifest().first_token, 42);
        EXPECT_FALSE(receiver.ready(0));
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(0, soon()));
        EXPECT_LT(cache.error_of(receiver, 0), 0.8F);
        EXPECT_GT(cache.error_of(receiver, 0), 0.1F) << "four bits cannot be this good";
        ASSERT_TRUE(receiver.wait(1, soon()));
        EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
        pair.to_prefill->finish(receiver);
        EXPECT_TRUE(pair.to_decode->finish(sender, soon()));
        EXPECT_TRUE(sender.wait_written(soon()));
        EXPECT_EQ(sender.progress().written_bytes, sender.progress().part_bytes);
    }
    EXPECT_TRUE(becomes_free(pair.decode));
    EXPECT_TRUE(becomes_free(pair.prefill));
}

TEST_P(Transfer, RawIsBitExact) {
    Pair pair(GetParam());
    TestCache cache(2, 3, 70, 40);
    auto [sender, receiver] = pair.open(cache.manifest(1, Coding::kRaw, 1));
    cache.put_all(sender);
    ASSERT_TRUE(receiver.wait(0, soon()));
    EXPECT_EQ(cache.error_of(receiver, 0), 0.0F);
}

TEST_P(Transfer, KeepsTheLowerOfTheTwoRates) {
    Pair pair(GetParam());
    TestCache cache(4, 2, 500, 64);  // 272 kB coded
    const std::pair<std::uint64_t, std::uint64_t> limits[] = {{1'000'000, 0}, {0, 1'000'000}, {1'000'000, 9'000'000}};
    std::uint64_t request = 0;
    for (const auto& [at_sender, at_receiver] : limits) {
        auto [sender, receiver] =
            pair.open(cache.manifest(++request), {.bytes_per_second = at_sender}, {.bytes_per_second = at_receiver});
        const auto begin = Clock::now();
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(1, soon()));
        const double bytes = static_cast<double>(receiver.revision().part_bytes[0] + receiver.revision().part_bytes[1]);
        EXPECT_GT(std::chrono::duration<double>(Clock::now() - begin).count(), 0.95 * bytes / 1e6);
    }
}

TEST_P(Transfer, RefusesInWordsWhatTheArenaCannotHold) {
    Pair pair(GetParam(), 64u << 10);
    TestCache cache(4, 2, 500, 64);
    std::string refusal;
    std::thread offering([&] {
        try {
            (void)pair.to_decode->offer(cache.manifest(1), soon());
        } catch (const ProtocolError& e) {
            refusal = e.what();
        }
    });
    EXPECT_THROW((void)pair.to_prefill->accept_offer(soon()), ArenaFull);
    offering.join();
    EXPECT_NE(refusal.find("arena"), std::string::npos) << refusal;

    TestCache small(1, 1, 8, 64);
    auto [sender, receiver] = pair.open(small.manifest(2));
    small.put_all(sender);
    EXPECT_TRUE(receiver.wait(1, soon())) << "and the next request works";
}

TEST_P(Transfer, CancelledByTheReceiverStopsAndFreesBothSides) {
    Pair pair(GetParam());
    TestCache cache(8, 2, 500, 64);
    {
        auto [sender, receiver] = pair.open(cache.manifest(1), {.bytes_per_second = 1'000'000});
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(0, 0, soon()));
        EXPECT_TRUE(pair.to_prefill->cancel(receiver, "the user has gone", soon()));
        EXPECT_THROW((void)receiver.wait(1, soon()), Cancelled);
        EXPECT_TRUE(receiver.ready(0, 0)) << "what had arrived stays readable";
        try {
            (void)pair.to_decode->finish(sender, soon());
            FAIL();
        } catch (const Cancelled& e) {
            EXPECT_NE(std::string(e.what()).find("the user has gone"), std::string::npos) << e.what();
        }
    }
    EXPECT_TRUE(becomes_free(pair.decode));
    EXPECT_TRUE(becomes_free(pair.prefill));
}

TEST_P(Transfer, ConfirmedByAReceiverThatLeavesAtOnceHasNotFailed) {
    TestCache cache(8, 2, 200, 64);
    for (int round = 0; round < 10; ++round) {
        Pair pair(GetParam());
        auto [sender, receiver] = pair.open(cache.manifest(1));
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(1, soon()));
        pair.to_prefill->finish(receiver);
        pair.to_prefill.reset();
        EXPECT_TRUE(pair.to_decode->finish(sender, soon()));
    }
}

TEST_P(Transfer, FinishedBeforeAllHasComeStopsTheRest) {
    Pair pair(GetParam());
    TestCache cache(8, 2, 500, 64);
    {
        auto [sender, receiver] = pair.open(cache.manifest(1), {.bytes_per_second = 1'000'000});
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(0, 0, soon()));
        pair.to_prefill->finish(receiver);
        EXPECT_THROW((void)pair.to_decode->finish(sender, soon()), Cancelled);
    }
    EXPECT_TRUE(becomes_free(pair.decode));
    EXPECT_TRUE(becomes_free(pair.prefill));
}

TEST_P(Transfer, CancelledByTheSenderStopsAndFreesBothSides) {
    Pair pair(GetParam());
    TestCache cache(8, 2, 500, 64);
    {
        auto [sender, receiver] = pair.open(cache.manifest(1), {.bytes_per_second = 1'000'000});
        cache.put_all(sender);
        ASSERT_TRUE(receiver.wait(0, 0, soon()));
        EXPECT_TRUE(pair.to_decode->cancel(sender, "out of memory", soon()));
        EXPECT_THROW((void)receiver.wait(1, soon()), Cancelled);
    }
    EXPECT_TRUE(becomes_free(pair.decode));
}

TEST_P(Transfer, RefusedBeforeItsGrantTakesNoMemory) {
    Pair pair(GetParam());
    TestCache cache(2, 2, 50, 64);
    auto [sender, receiver] = pair.open(cache.manifest(1));
    const std::size_t free_before = pair.decode.arena_free_bytes();
    // The same number once more, offered from the other side: it is in use.
    EXPECT_THROW((void)pair.to_prefill->offer(cache.manifest(1), soon()), InvalidArgument);
    EXPECT_EQ(pair.decode.arena_free_bytes(), free_before);
}

TEST_P(Transfer, GrantedAfterItsDeadlineGivesTheSlotBack) {
    Pair pair(GetParam());
    TestCache cache(2, 2, 50, 64);
    EXPECT_THROW((void)pair.to_decode->offer(cache.manifest(1), Deadline::after(20ms)), Timeout);
    {
        const auto receiver = pair.to_prefill->accept_offer(soon());
        ASSERT_TRUE(receiver);
        EXPECT_THROW((void)receiver->wait(0, soon()), Cancelled);
    }
    EXPECT_TRUE(becomes_free(pair.decode));
}

TEST_P(Transfer, OfAPeerThatLeavesFailsAtOnce) {
    Pair pair(GetParam());
    TestCache cache(8, 2, 500, 64);
    auto [sender, receiver] = pair.open(cache.manifest(1), {.bytes_per_second = 1'000'000});
    cache.put_all(sender);
    ASSERT_TRUE(receiver.wait(0, 0, soon()));
    pair.to_decode.reset();
    const auto begin = Clock::now();
    EXPECT_THROW((void)receiver.wait(1, soon()), PeerLost);
    EXPECT_LT(Clock::now() - begin, 2s);
    EXPECT_THROW((void)sender.wait_written(soon()), Cancelled);
    EXPECT_TRUE(pair.to_prefill->lost());
}

TEST_P(Transfer, CarriesTwoRequestsAtOnce) {
    Pair pair(GetParam());
    TestCache cache(8, 2, 500, 64);
    auto [first_sender, first] = pair.open(cache.manifest(1), {.bytes_per_second = 2'000'000});
    cache.put_all(first_sender);
    auto [second_sender, second] = pair.open(cache.manifest(2), {.bytes_per_second = 2'000'000});
    cache.put_all(second_sender);
    EXPECT_TRUE(first.wait(1, soon()));
    EXPECT_TRUE(second.wait(1, soon()));
    EXPECT_LT(cache.error_of(first, 1), 0.05F);
    EXPECT_LT(cache.error_of(second, 1), 0.05F);
}

TEST_P(Transfer, ChecksWhatTheCallerPuts) {
    Pair pair(GetParam());
    TestCache cache(2, 2, 50, 64);
    TestCache other(2, 2, 51, 64);
    auto [sender, receiver] = pair.open(cache.manifest(1));
    const auto good = cache.view_of<TensorView>(cache.of(0, TensorRole::kKey).data());
    EXPECT_THROW(sender.put(7, TensorRole::kKey, good), InvalidArgument) << "no such layer";
    EXPECT_THROW(sender.put(0, TensorRole::kKey, other.view_of<TensorView>(other.of(0, TensorRole::kKey).data())),
                 InvalidArgument)
        << "another shape";
    sender.put(0, TensorRole::kKey, good);
    EXPECT_THROW(sender.put(0, TensorRole::kKey, good), InvalidArgument) << "twice";
    std::vector<float> out(good.shape[0] * good.shape[1] * good.shape[2]);
    EXPECT_THROW(receiver.decode(1, TensorRole::kKey, 0, cache.view_of<MutableTensorView>(out.data())), InvalidArgument)
        << "not arrived";
}

TEST_P(Transfer, CarriesTheEmbeddersMessagesInOrder) {
    Pair pair(GetParam());
    for (int i = 0; i < 100; ++i) pair.to_decode->send_message(std::vector<std::byte>(i, std::byte(i)));
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(pair.to_prefill->receive_message(soon())->size(), static_cast<std::size_t>(i));
    EXPECT_EQ(pair.to_prefill->receive_message(Deadline::after(10ms)), std::nullopt);
    EXPECT_THROW(pair.to_decode->send_message(std::vector<std::byte>(kMaxMessageBytes + 1)), InvalidArgument);
}

TEST_P(Transfer, WorksWithoutPeerWhereTheEmbedderCarriesTheBlobs) {
    const NodeOptions options{.fabric = {GetParam(), "127.0.0.1"}, .arena_bytes = 8u << 20};
    Node prefill(options), decode(options);
    const PeerId peer = prefill.add_peer(decode.address());
    TestCache cache(2, 2, 100, 64);
    PlaneReceiver receiver(decode, Manifest::parse(cache.manifest(5).serialize()));
    PlaneSender sender(prefill, peer, cache.manifest(5), Grant::parse(receiver.grant().serialize()));
    cache.put_all(sender);
    EXPECT_TRUE(receiver.wait(1, soon()));
    EXPECT_TRUE(sender.wait_written(soon()));
    EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
}

TEST_P(Transfer, OverAnEndpointThatBreaksEndsWithItsReason) {
    Node node({.fabric = {GetParam(), "127.0.0.1"}, .arena_bytes = 8u << 20});
    const PlaneReceiver receiver(node, TestCache(1, 1, 8, 64).manifest(1));
    node.impl()->rails[0]->on_broken(std::make_exception_ptr(FabricError("out of order")));
    EXPECT_THROW((void)receiver.wait(0, soon()), FabricError);
}

TEST_P(Transfer, OverEndpointsOfWhichTheLastBreaksEndsWithItsReason) {
    const FabricOptions fabric{GetParam(), "127.0.0.1"};
    Node node({.fabric = fabric, .more_rails = {fabric}, .arena_bytes = 8u << 20});
    const PlaneReceiver receiver(node, TestCache(1, 1, 8, 64).manifest(1));
    const auto reason = std::make_exception_ptr(FabricError("out of order"));
    node.impl()->rails[1]->on_broken(reason);
    EXPECT_FALSE(receiver.wait(0, Deadline::after(0s)));
    node.impl()->rails[0]->on_broken(reason);
    EXPECT_THROW((void)receiver.wait(0, soon()), FabricError);
}

TEST_P(Transfer, GoesOverEveryRail) {
    const FabricOptions fabric{GetParam(), "127.0.0.1"};
    Node prefill({.fabric = fabric, .more_rails = {fabric}, .arena_bytes = 64u << 20});
    Node decode({.fabric = fabric, .more_rails = {fabric, fabric}, .arena_bytes = 64u << 20});
    const PeerId peer = prefill.add_peer(decode.address());
    TestCache cache(4, 2, 2000, 64);
    const Manifest manifest = cache.manifest(5);
    PlaneReceiver receiver(decode, manifest);
    EXPECT_EQ(receiver.grant().regions.size(), 3u);
    PlaneSender sender(prefill, peer, manifest, receiver.grant());
    cache.put_all(sender);
    EXPECT_TRUE(receiver.wait(1, soon()));
    EXPECT_TRUE(sender.wait_written(soon()));
    EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
    EXPECT_EQ(prefill.live_rails(peer), 2u);
}

TEST_P(Transfer, RestoresTheSourceBitForBitFromTheExactTier) {
    Pair pair(GetParam());
    TestCache cache(2, 2, 300, 64);
    Manifest manifest = cache.manifest(5);
    manifest.parts = 3;
    std::vector<std::vector<std::uint16_t>> sources;
    for (ManifestTensor& t : manifest.tensors) t.spec.dtype = DType::kBF16, t.spec.exact = true;
    const auto view = [&]<class View>(View, auto* data) {
        return View{reinterpret_cast<decltype(View::data)>(data), DType::kBF16, {2, 300, 64}, {300 * 64, 64, 1}};
    };
    auto offer = std::async(std::launch::async, [&] { return pair.to_decode->offer(manifest, soon()); });
    PlaneReceiver receiver = pair.to_prefill->accept_offer(soon()).value();
    PlaneSender sender = offer.get();
    for (std::uint32_t layer = 0; layer < 2; ++layer)
        for (const TensorRole role : kRoles) {
            auto& source = sources.emplace_back();
            for (const float x : cache.of(layer, role))
                source.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
            sender.put(layer, role, view(TensorView{}, source.data()));
        }
    ASSERT_TRUE(receiver.wait(manifest.exact_part(), soon()));
    EXPECT_EQ(receiver.tier(), manifest.exact_part());
    for (std::uint32_t layer = 0; layer < 2; ++layer)
        for (const TensorRole role : kRoles) {
            std::vector<std::uint16_t> out(sources[0].size());
            receiver.decode(layer, role, manifest.exact_part(), view(MutableTensorView{}, out.data()));
            EXPECT_EQ(out, sources[layer * 2 + static_cast<unsigned>(role)]);
        }
    EXPECT_EQ(receiver.revision().arrived_bytes, receiver.revision().part_bytes);
    pair.to_prefill->finish(receiver);
    EXPECT_TRUE(pair.to_decode->finish(sender, soon()));
    EXPECT_TRUE(sender.wait_written(soon()));
    EXPECT_EQ(sender.progress().written_bytes, sender.progress().part_bytes);
}

TEST_P(Transfer, PutsATensorTogetherFromChunksOfTokensAndShardsOfHeads) {
    Pair pair(GetParam());
    TestCache cache(1, 4, 300, 64);
    Manifest manifest = cache.manifest(5);
    manifest.tensors.clear();
    struct Place {
        std::uint32_t token, tokens, head, heads;
    };
    const std::vector<Place> places = {{100, 200, 0, 4}, {0, 100, 3, 1}, {0, 100, 0, 3}};
    for (const TensorRole role : kRoles)
        for (const Place& p : places)
            manifest.tensors.push_back(
                {0, role, {Coding::kPlanes, DType::kF32, p.heads, p.tokens, 64, 4}, p.token, p.head});
    auto offer = std::async(std::launch::async, [&] { return pair.to_decode->offer(manifest, soon()); });
    PlaneReceiver receiver = pair.to_prefill->accept_offer(soon()).value();
    PlaneSender sender = offer.get();
    for (const TensorRole role : kRoles)
        for (const Place& p : places) {
            TensorView piece = cache.view_of<TensorView>(cache.of(0, role).data());
            piece.data = piece.vector(p.head, p.token);
            piece.shape = {p.heads, p.tokens, 64};
            EXPECT_FALSE(receiver.ready(0, 0));
            sender.put(0, role, piece, p.token, p.head);
        }
    ASSERT_TRUE(receiver.wait(1, soon()));
    EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
    TensorView whole = cache.view_of<TensorView>(cache.of(0, TensorRole::kKey).data());
    EXPECT_THROW(sender.put(0, TensorRole::kKey, whole), InvalidArgument) << "no such piece";
    EXPECT_TRUE(sender.wait_written(soon()));
}

TEST_P(Transfer, RefusesAGrantThatDoesNotFit) {
    Node node({.fabric = {GetParam(), "127.0.0.1"}, .arena_bytes = 8u << 20});
    TestCache cache(2, 2, 100, 64);
    const PlaneReceiver receiver(node, cache.manifest(5));
    const PeerId peer = node.add_peer(node.address());
    Grant grant = receiver.grant();
    grant.regions[0].bytes -= 1;
    EXPECT_THROW(PlaneSender(node, peer, cache.manifest(5), grant), ProtocolError) << "too small";
    EXPECT_THROW(PlaneSender(node, peer, cache.manifest(6), receiver.grant()), ProtocolError) << "another request";
}

INSTANTIATE_TEST_SUITE_P(Providers, Transfer, testing::ValuesIn(usable_providers()), [](const auto& instance) {
    std::string name = instance.param;
    std::replace(name.begin(), name.end(), ';', '_');
    return name;
});

}  // namespace
}  // namespace lynx
