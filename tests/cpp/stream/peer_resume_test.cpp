// Connections that break and are taken up anew, and what was under way over them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "stream/cache.hpp"
#include "stream/peer_stranger.hpp"
#include "stream/relay.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;
using testing::Relay;

PeerOptions persistent(Clock::duration reconnect_for = 20s) {
    PeerOptions options;
    options.reconnect_for = reconnect_for;
    return options;
}

NodeOptions with_room(const std::string& provider = "auto") {
    return {.fabric = {provider, "127.0.0.1"}, .arena_bytes = 16u << 20};
}

// Two nodes of which one has connected to the other through a relay.
struct Relayed {
    explicit Relayed(const std::string& provider = "auto", const PeerOptions& options = persistent())
        : prefill(with_room(provider)),
          decode(with_room(provider)),
          listener(prefill, "127.0.0.1", 0, {}, options),
          relay(listener.port()),
          to_prefill(Peer::connect(decode, "127.0.0.1", relay.port(), soon(), {}, options)),
          to_decode(*listener.accept(soon())) {}

    std::pair<PlaneSender, PlaneReceiver> open(const Manifest& manifest, std::uint64_t bytes_per_second) {
        std::optional<PlaneSender> sender;
        std::thread offering(
            [&] { sender.emplace(to_decode.offer(manifest, soon(), {.bytes_per_second = bytes_per_second})); });
        auto receiver = to_prefill.accept_offer(soon());
        offering.join();
        return {std::move(sender.value()), std::move(receiver.value())};
    }
    void cut_for(Clock::duration time) {
        relay.cut();
        std::this_thread::sleep_for(time);
        relay.mend();
    }

    Node prefill, decode;
    Listener listener;
    Relay relay;
    Peer to_prefill, to_decode;
};

std::vector<std::byte> numbered(std::uint32_t number, std::size_t bytes) {
    std::vector<std::byte> message(std::max(bytes, sizeof(number)));
    std::memcpy(message.data(), &number, sizeof(number));
    return message;
}

TEST(PeerResume, MessagesAreNeitherLostNorDoubledNorPutInAnotherOrder) {
    Relayed pair;
    constexpr std::uint32_t kMany = 300;
    const auto talk = [&](Peer& peer) {
        for (std::uint32_t i = 0; i < kMany; ++i) {
            peer.send_message(numbered(i, i % 10 == 0 ? 100'000 : 100));
            std::this_thread::sleep_for(2ms);
        }
    };
    const auto listen = [&](Peer& peer) {
        for (std::uint32_t i = 0; i < kMany; ++i) {
            const auto message = peer.receive_message(Deadline::after(30s));
            ASSERT_TRUE(message) << i;
            std::uint32_t number = 0;
            std::memcpy(&number, message->data(), sizeof(number));
            ASSERT_EQ(number, i);
        }
    };
    std::jthread here([&] { talk(pair.to_prefill); });
    std::jthread there([&] { talk(pair.to_decode); });
    std::jthread reading([&] { listen(pair.to_prefill); });
    std::jthread cutting([&] {
        for (int i = 0; i < 4; ++i) {
            std::this_thread::sleep_for(120ms);
            pair.cut_for(50ms);
        }
    });
    listen(pair.to_decode);
    reading.join();
    cutting.join();
    EXPECT_FALSE(pair.to_prefill.lost());
    EXPECT_FALSE(pair.to_decode.lost());
}

TEST(PeerResume, TheListenerMakesNoNewPeerOfIt) {
    Relayed pair;
    pair.cut_for(50ms);
    for (int i = 0; i < 1000 && pair.relay.connections() < 2; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_GE(pair.relay.connections(), 2);
    EXPECT_FALSE(pair.listener.accept(Deadline::after(100ms)));
    pair.to_decode.send_message(numbered(7, 4));
    EXPECT_TRUE(pair.to_prefill.receive_message(soon()));
}

TEST(PeerResume, AnOfferThatIsMadeMeanwhileIsGrantedAfterwards) {
    Relayed pair;
    TestCache cache(2, 2, 50, 64);
    pair.relay.cut();
    std::jthread mending([&] {
        std::this_thread::sleep_for(300ms);
        pair.relay.mend();
    });
    auto [sender, receiver] = pair.open(cache.manifest(1), 0);
    cache.put_all(sender);
    EXPECT_TRUE(receiver.wait(1, soon()));
}

TEST(PeerResume, ALinkThatFallsSilentIsTakenUpAnewToo) {
    PeerOptions options = persistent();
    options.heartbeat_interval = 50ms;
    options.lost_after = 400ms;
    Relayed pair("auto", options);
    pair.relay.hold(true);
    std::this_thread::sleep_for(1s);
    pair.relay.hold(false);
    pair.to_decode.send_message(numbered(7, 4));
    EXPECT_TRUE(pair.to_prefill.receive_message(soon()));
}

TEST(PeerResume, OneThatComesTooLateIsLostOnBothSides) {
    Relayed pair("auto", persistent(300ms));
    TestCache cache(4, 2, 300, 64);
    auto [sender, receiver] = pair.open(cache.manifest(1), 100'000);
    cache.put_all(sender);
    pair.relay.cut();
    const auto begin = Clock::now();
    EXPECT_THROW((void)receiver.wait(1, soon()), PeerLost);
    EXPECT_THROW((void)pair.to_decode.finish(sender, soon()), PeerLost);
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_TRUE(pair.to_prefill.lost());
    EXPECT_TRUE(pair.to_decode.lost());
}

TEST(PeerResume, APeerThatIsNotThereAnyMoreIsLostAtOnce) {
    Relayed pair;
    Node other(with_room());
    Listener another(other, "127.0.0.1", 0, {}, persistent());
    pair.relay.turn_to(another.port());
    pair.cut_for(100ms);
    const auto begin = Clock::now();
    const std::string words = error_of([&] { (void)pair.to_prefill.receive_message(soon()); });
    EXPECT_NE(words.find("does not know"), std::string::npos) << words;
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_TRUE(pair.to_prefill.lost());
}

TEST(PeerResume, APeerThatClosesIsNotWaitedFor) {
    Relayed pair;
    pair.to_prefill.close();
    const auto begin = Clock::now();
    EXPECT_THROW((void)pair.to_decode.receive_message(soon()), PeerLost);
    EXPECT_LT(Clock::now() - begin, 3s);
}

TEST(PeerResume, NeedsBothSidesToWantIt) {
    Node a(with_room());
    Node b(with_room());
    Listener listener(a, "127.0.0.1", 0);
    Relay relay(listener.port());
    Peer to_a = Peer::connect(b, "127.0.0.1", relay.port(), soon(), {}, persistent());
    auto to_b = listener.accept(soon());
    relay.cut();
    const auto begin = Clock::now();
    EXPECT_THROW((void)to_a.receive_message(soon()), PeerLost);
    EXPECT_THROW((void)to_b->receive_message(soon()), PeerLost);
    EXPECT_LT(Clock::now() - begin, 3s);
}

TEST(PeerResume, ATransferThatHasNothingToSendYetOutlivesAnyNumberOfBrokenConnections) {
    Relayed pair;
    TestCache cache(1, 1, 8, 64);
    auto [sender, receiver] = pair.open(cache.manifest(1), 0);
    for (int i = 0; i < 6; ++i) {
        const int before = pair.relay.connections();
        pair.cut_for(10ms);
        for (int n = 0; n < 500 && pair.relay.connections() == before; ++n) std::this_thread::sleep_for(10ms);
        std::this_thread::sleep_for(200ms);
    }
    cache.put_all(sender);
    EXPECT_TRUE(receiver.wait(1, soon()));
    pair.to_prefill.finish(receiver);
    EXPECT_TRUE(pair.to_decode.finish(sender, soon()));
}

TEST(PeerResume, ATransferOfNoTokensGoesOnToo) {
    Relayed pair;
    TestCache cache(1, 1, 0, 64);
    auto [sender, receiver] = pair.open(cache.manifest(1), 0);
    pair.cut_for(10ms);
    std::this_thread::sleep_for(500ms);
    EXPECT_FALSE(pair.to_prefill.lost());
    EXPECT_TRUE(receiver.complete());
    pair.to_prefill.finish(receiver);
    EXPECT_TRUE(pair.to_decode.finish(sender, soon()));
}

struct PeerResumes : ::testing::TestWithParam<std::string> {};

TEST_P(PeerResumes, ATransferAndNothingThatHasArrivedIsSentAgain) {
    Relayed pair(GetParam());
    TestCache cache(8, 2, 500, 64);
    auto [sender, receiver] = pair.open(cache.manifest(1), 400'000);
    cache.put_all(sender);
    for (int i = 0; i < 3; ++i) {
        std::this_thread::sleep_for(150ms);
        pair.cut_for(50ms);
    }
    ASSERT_TRUE(receiver.wait(1, Deadline::after(30s)));
    EXPECT_LT(cache.error_of(receiver, 1), 0.05F);
    pair.to_prefill.finish(receiver);
    EXPECT_TRUE(pair.to_decode.finish(sender, soon()));
    EXPECT_TRUE(sender.wait_written(soon()));
    EXPECT_GE(pair.relay.connections(), 2);
    const SendProgress progress = sender.progress();
    // What was landing just when its receiver was asked may be sent again; no more.
    EXPECT_LE(progress.resent_bytes, 8u * kMinChunkBytes);
    EXPECT_EQ(progress.written_bytes, progress.part_bytes);
}

TEST_P(PeerResumes, ATransferThatIsCancelledWhileTheConnectionIsBroken) {
    Relayed pair(GetParam());
    TestCache cache(8, 2, 500, 64);
    {
        auto [sender, receiver] = pair.open(cache.manifest(1), 400'000);
        cache.put_all(sender);
        std::this_thread::sleep_for(100ms);
        pair.relay.cut();
        EXPECT_FALSE(pair.to_prefill.cancel(receiver, "the user has gone", Deadline::after(50ms)));
        pair.relay.mend();
        EXPECT_THROW((void)pair.to_decode.finish(sender, soon()), Cancelled);
    }
    for (int i = 0; i < 1000 && pair.decode.arena_free_bytes() != pair.decode.arena_bytes(); ++i)
        std::this_thread::sleep_for(10ms);
    EXPECT_EQ(pair.decode.arena_free_bytes(), pair.decode.arena_bytes());
}

std::vector<std::string> usable_providers() {
    std::vector<std::string> names;
    for (const ProviderInfo& p : list_providers())
        if (p.usable && p.name != "sockets") names.push_back(p.name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(Providers, PeerResumes, ::testing::ValuesIn(usable_providers()), [](const auto& instance) {
    std::string name = instance.param;
    std::replace(name.begin(), name.end(), ';', '_');
    return name;
});

}  // namespace
}  // namespace lynx
