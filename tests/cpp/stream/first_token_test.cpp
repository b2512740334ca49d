// The first token of a request whose manifest went before prefill had sampled it.
#include <gtest/gtest.h>

#include <thread>

#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "stream/cache.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

Deadline soon() {
    return Deadline::after(10s);
}

NodeOptions small() {
    return {.fabric = {}, .arena_bytes = 1u << 20};
}

class FirstToken : public testing::Test {
   protected:
    FirstToken() {
        std::thread connecting(
            [&] { to_prefill.emplace(Peer::connect(decode, "127.0.0.1", listener.port(), soon())); });
        to_decode = listener.accept(soon());
        connecting.join();
    }

    void open(std::int32_t first_token) {
        Manifest manifest = cache.manifest(1);
        manifest.first_token = first_token;
        std::thread offering([&] { sender.emplace(to_decode->offer(manifest, soon())); });
        receiver = to_prefill->accept_offer(soon());
        offering.join();
    }

    TestCache cache{1, 1, 8, 64};
    Node prefill{small()}, decode{small()};
    Listener listener{prefill, "127.0.0.1", 0};
    std::optional<Peer> to_decode, to_prefill;
    std::optional<PlaneSender> sender;
    std::optional<PlaneReceiver> receiver;
};

TEST_F(FirstToken, IsThereAtOnceIfTheManifestHasIt) {
    open(42);
    EXPECT_EQ(receiver->first_token(Deadline::after(0s)), 42);
    EXPECT_THROW(to_decode->send_first_token(*sender, 42), InvalidArgument);
    EXPECT_THROW(receiver->set_first_token(42), ProtocolError);
}

TEST_F(FirstToken, FollowsWhenPrefillHasSampledIt) {
    open(-1);
    EXPECT_EQ(receiver->first_token(Deadline::after(10ms)), std::nullopt);
    to_decode->send_first_token(*sender, 7);
    EXPECT_EQ(receiver->first_token(soon()), 7);
}

TEST_F(FirstToken, IsSentOnceAndNeverNegative) {
    open(-1);
    EXPECT_THROW(to_decode->send_first_token(*sender, -1), InvalidArgument);
    to_decode->send_first_token(*sender, 0);
    EXPECT_THROW(to_decode->send_first_token(*sender, 1), InvalidArgument);
    EXPECT_EQ(receiver->first_token(soon()), 0);
}

TEST_F(FirstToken, ThatAPeerMakesUpIsRefused) {
    open(-1);
    EXPECT_THROW(receiver->set_first_token(-5), ProtocolError);
    receiver->set_first_token(5);
    EXPECT_THROW(receiver->set_first_token(5), ProtocolError);
}

TEST_F(FirstToken, IsNotWaitedForOnceTheTransferHasFailed) {
    open(-1);
    std::thread cancelling([&] { EXPECT_TRUE(to_decode->cancel(*sender, "prefill failed", soon())); });
    EXPECT_THROW((void)receiver->first_token(soon()), Cancelled);
    cancelling.join();
    EXPECT_THROW(to_decode->send_first_token(*sender, 7), Cancelled);
}

}  // namespace
}  // namespace lynx
