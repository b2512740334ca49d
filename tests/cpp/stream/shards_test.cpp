// Requests that several ranks send and several receive: the plan, its refusals, and transfers by it.
#include "lynx/shards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "fabric/providers_for_tests.hpp"
#include "lynx/error.hpp"
#include "stream/cache.hpp"
#include "stream/links.hpp"

namespace lynx::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kHeadDim = 64;

std::vector<LayerShape> shapes(std::uint32_t layers, std::uint32_t heads) {
    return std::vector<LayerShape>(layers, LayerShape{heads, kHeadDim, DType::kF32});
}

ShardLayout even(std::uint32_t layers, std::uint32_t heads, std::uint32_t tensor, std::uint32_t pipeline = 1) {
    return ShardLayout::even(shapes(layers, heads), tensor, pipeline);
}

template <class Call>
std::string error_of(Call call) {
    try {
        call();
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

template <class... Words>
void expect_words(const std::string& error, const Words&... words) {
    for (const std::string& word : {std::string(words)...})
        EXPECT_NE(error.find(word), std::string::npos) << "'" << word << "' in: " << error;
}

// Each head of each layer that a receiver owns comes to it once, from one who owns it.
void expect_whole(const ShardPlan& plan) {
    const auto owns = [](const std::vector<Shard>& shards, std::uint32_t layer, std::uint32_t head) {
        return std::any_of(shards.begin(), shards.end(), [&](const Shard& s) {
            return layer >= s.first_layer && layer < s.first_layer + s.layers && head >= s.first_head &&
                   head < s.first_head + s.heads;
        });
    };
    for (std::uint32_t r = 0; r < plan.receivers().ranks.size(); ++r) {
        std::map<std::pair<std::uint32_t, std::uint32_t>, int> got;
        for (std::uint32_t s = 0; s < plan.senders().ranks.size(); ++s)
            for (const ShardPiece& p : plan.pieces(s, r))
                for (std::uint32_t h = p.first_head; h < p.first_head + p.heads; ++h) {
                    got[{p.layer, h}] += 1;
                    EXPECT_TRUE(owns(plan.senders().ranks[s], p.layer, h));
                }
        for (std::uint32_t l = 0; l < plan.receivers().layers.size(); ++l)
            for (std::uint32_t h = 0; h < plan.receivers().layers[l].heads; ++h)
                EXPECT_EQ((got[{l, h}]), owns(plan.receivers().ranks[r], l, h) ? 1 : 0) << l << ' ' << h << ' ' << r;
    }
}

TEST(ShardPlan, BringsEveryReceiverAllThatItOwnsOnceWhateverTheDegrees) {
    for (const std::uint32_t heads : {1u, 2u, 8u, 12u})
        for (const auto& [tensor, pipeline] :
             std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 1}, {2, 1}, {1, 3}, {4, 2}, {2, 5}, {3, 2}})
            for (const auto& [to_tensor, to_pipeline] :
                 std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 1}, {3, 1}, {1, 4}, {2, 4}, {5, 2}}) {
                if ((heads < tensor && tensor % heads != 0) || (heads < to_tensor && to_tensor % heads != 0)) continue;
                const ShardPlan plan(even(7, heads, tensor, pipeline), even(7, heads, to_tensor, to_pipeline));
                expect_whole(plan);
            }
}

TEST(ShardPlan, HoldsForAnyRunsOfHeadsAndLayersThatDiffer) {
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        std::vector<LayerShape> layers;
        for (unsigned l = 0; l < 1 + random() % 6; ++l)
            layers.push_back({1 + static_cast<std::uint32_t>(random() % 9), kHeadDim, DType::kBF16, random() % 4 != 0});
        const auto dealt = [&] {
            ShardLayout layout{layers, std::vector<std::vector<Shard>>(12)};
            for (std::uint32_t l = 0; l < layers.size(); ++l) {
                std::vector<std::uint32_t> ranks(12);
                for (std::uint32_t r = 0; r < 12; ++r) ranks[r] = r;
                std::shuffle(ranks.begin(), ranks.end(), random);
                for (std::uint32_t h = 0; h < layers[l].heads;) {
                    const auto n = std::min<std::uint32_t>(1 + random() % 4, layers[l].heads - h);
                    for (unsigned copies = 1 + (ranks.size() > 9 ? random() % 3 : 0); copies > 0; --copies) {
                        layout.ranks[ranks.back()].push_back({l, 1, h, n});
                        ranks.pop_back();
                    }
                    h += n;
                }
            }
            return layout;
        };
        const ShardPlan plan(dealt(), dealt());
        expect_whole(plan);
    }
}

TEST(ShardPlan, IsTheSameAtTheOtherEnd) {
    const ShardLayout senders = even(5, 8, 4, 2), receivers = even(5, 8, 2, 3);
    const ShardPlan here(senders, receivers);
    const ShardPlan there(ShardLayout::parse(senders.serialize()), ShardLayout::parse(receivers.serialize()));
    for (std::uint32_t s = 0; s < 8; ++s)
        for (std::uint32_t r = 0; r < 6; ++r) EXPECT_TRUE(std::ranges::equal(here.pieces(s, r), there.pieces(s, r)));
}

TEST(ShardPlan, SharesTheLayersOfReplicatedHeadsAmongTheirOwners) {
    const ShardPlan plan(even(8, 2, 4), even(8, 2, 1));  // each head is at two of the four
    for (std::uint32_t s = 0; s < 4; ++s) EXPECT_EQ(plan.pieces(s, 0).size(), 4u) << s;
    const ShardPlan to_copies(even(8, 2, 4), even(8, 2, 4));
    for (std::uint32_t s = 0; s < 4; ++s) {
        std::size_t pieces = 0;
        for (std::uint32_t r = 0; r < 4; ++r) pieces += to_copies.pieces(s, r).size();
        EXPECT_EQ(pieces, 8u) << s;
    }
}

TEST(ShardPlan, RefusesInWordsWhatNobodyOwns) {
    ShardLayout senders = even(4, 8, 2);
    senders.ranks[1] = {{0, 2, 4, 4}, {3, 1, 4, 4}};
    expect_words(error_of([&] { ShardPlan(senders, even(4, 8, 1)); }), "senders", "layer 2", "nobody owns",
                 "heads 4 to 7");
    senders = even(4, 8, 2);
    senders.ranks[1][0].first_head = 5, senders.ranks[1][0].heads = 3;
    expect_words(error_of([&] { ShardPlan(even(4, 8, 1), senders); }), "receivers", "layer 0", "head 4");
    senders.ranks[1].clear();
    expect_words(error_of([&] { ShardPlan(even(4, 8, 1), senders); }), "receivers", "layer 0", "heads 4 to 7");
}

TEST(ShardPlan, RefusesInWordsAnOverlapThatIsNoReplication) {
    ShardLayout senders = even(4, 8, 2);
    senders.ranks[1] = {{0, 4, 3, 5}};
    expect_words(error_of([&] { ShardPlan(senders, even(4, 8, 1)); }), "layer 0", "rank 0", "heads 0 to 3", "rank 1",
                 "heads 3 to 7");
}

TEST(ShardPlan, RefusesInWordsCachesThatDiffer) {
    const ShardLayout senders = even(4, 8, 2);
    expect_words(error_of([&] { ShardPlan(senders, even(5, 8, 2)); }), "4 layers", "5");
    expect_words(error_of([&] { ShardPlan(senders, even(4, 4, 2)); }), "layer 0", "heads", "8", "4");
    ShardLayout other = senders;
    other.layers[2].head_dim = 128;
    expect_words(error_of([&] { ShardPlan(senders, other); }), "layer 2", "head_dim", "64", "128");
    other = senders;
    other.layers[3].dtype = DType::kF16;
    expect_words(error_of([&] { ShardPlan(senders, other); }), "layer 3", "fp32", "fp16");
    other = senders;
    other.layers[1].value = false;
    expect_words(error_of([&] { ShardPlan(senders, other); }), "layer 1", "tensors");
}

TEST(ShardLayout, RefusesWhatIsOutOfBounds) {
    const auto refuses = [](const auto& change, const std::string& word) {
        ShardLayout layout = even(4, 8, 2);
        change(layout);
        expect_words(error_of([&] { layout.validate(); }), word);
    };
    refuses([](ShardLayout& l) { l.ranks[1][0].layers = ~0u; }, "rank 1");
    refuses([](ShardLayout& l) { l.ranks[1][0].first_layer = ~0u; }, "4 layers");
    refuses([](ShardLayout& l) { l.ranks[1][0].heads = ~0u; }, "layer 0 has 8");
    refuses([](ShardLayout& l) { l.ranks[1][0].heads = 0; }, "empty");
    refuses([](ShardLayout& l) { l.ranks[0] = {{0, 4, 0, 2}, {0, 4, 2, 2}}; }, "one run of heads");
    refuses([](ShardLayout& l) { l.ranks.clear(); }, "0 ranks");
    refuses([](ShardLayout& l) { l.ranks.resize(kMaxRanks + 1); }, "257 ranks");
    refuses([](ShardLayout& l) { l.layers.clear(); }, "0 layers");
    refuses([](ShardLayout& l) { l.layers[3].head_dim = 7; }, "layer 3");
    EXPECT_THROW((void)even(4, 8, 0), InvalidArgument);
    EXPECT_THROW((void)even(4, 8, 2, 5), InvalidArgument) << "a stage without a layer";
    EXPECT_THROW((void)even(4, 3, 4), InvalidArgument) << "three heads for four ranks";
}

TEST(ShardLayout, OfAStrangerIsReadOrRefused) {
    const auto whole = even(4, 8, 4, 2).serialize();
    for (std::size_t n = 0; n < whole.size(); ++n)
        EXPECT_THROW((void)ShardLayout::parse(ConstByteSpan(whole).first(n)), ProtocolError) << n;
    std::mt19937 random(3);
    int refused = 0;
    for (int i = 0; i < 5000; ++i) {
        auto damaged = whole;
        for (unsigned n = 1 + random() % 4; n > 0; --n)
            damaged[random() % damaged.size()] = static_cast<std::byte>(random());
        try {
            ShardLayout::parse(damaged).validate();
        } catch (const ProtocolError&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 1000);
}

// The whole cache's manifest, and what a sending rank holds of it.
struct Cluster {
    Cluster(const std::string& provider, const ShardLayout& senders, const ShardLayout& receivers)
        : plan(senders, receivers) {
        for (std::size_t s = 0; s < senders.ranks.size(); ++s) prefill.push_back(node_of(provider));
        for (std::size_t r = 0; r < receivers.ranks.size(); ++r) decode.push_back(node_of(provider));
        for (std::uint32_t s = 0; s < prefill.size(); ++s)
            for (const std::uint32_t r : plan.receivers_from(s))
                links.emplace(std::pair(s, r), connect(prefill[s], decode[r]));
    }

    struct Transfer {
        std::uint32_t sender, receiver;
        PlaneSender out;
        PlaneReceiver in;
    };
    std::vector<Transfer> open_all(const Manifest& whole, const SenderOptions& options = {}) {
        std::vector<Transfer> transfers;
        for (auto& [pair, link] : links) {
            const auto& [s, r] = pair;
            auto [out, in] = open(link, plan.manifest(whole, s, r), options, {.plan = &plan, .shard = r});
            transfers.push_back({s, r, std::move(out), std::move(in)});
        }
        return transfers;
    }

    // The rank's own heads, as its engine holds them: a tensor of their own.
    void put_all(std::vector<Transfer>& transfers, TestCache& cache) {
        for (std::uint32_t s = 0; s < prefill.size(); ++s)
            for (const Shard& own : plan.senders().ranks[s])
                for (std::uint32_t layer = own.first_layer; layer < own.first_layer + own.layers; ++layer)
                    for (const TensorRole role : kRoles) {
                        const std::size_t head = std::size_t{cache.tokens} * cache.head_dim;
                        const auto from =
                            cache.of(layer, role).begin() + static_cast<std::ptrdiff_t>(own.first_head * head);
                        const std::vector<float> held(from, from + static_cast<std::ptrdiff_t>(own.heads * head));
                        TensorView view = cache.view_of<TensorView>(held.data());
                        view.shape[0] = own.heads;
                        for (Transfer& t : transfers)
                            if (t.sender == s) put_shard(t.out, layer, role, view);
                    }
    }

    ShardedReceiver assembly(std::vector<Transfer>& transfers, std::uint32_t receiver) {
        std::vector<ShardSource> sources;
        for (Transfer& t : transfers)
            if (t.receiver == receiver) sources.push_back({&t.in, &*links.at({t.sender, receiver}).at_decode});
        return {plan, receiver, std::move(sources)};
    }

    ShardPlan plan;
    std::vector<Node> prefill, decode;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Link> links;
};

// The largest difference between a rank's shard of the cache and what it has through `part`.
float error_of(const ShardedReceiver& receiver, const std::vector<Shard>& owned, TestCache& cache, unsigned part) {
    float worst = 0;
    for (const Shard& own : owned)
        for (std::uint32_t layer = own.first_layer; layer < own.first_layer + own.layers; ++layer)
            for (const TensorRole role : kRoles) {
                const std::size_t head = std::size_t{cache.tokens} * cache.head_dim;
                std::vector<float> out(own.heads * head);
                MutableTensorView view = cache.view_of<MutableTensorView>(out.data());
                view.shape[0] = own.heads;
                receiver.decode(layer, role, part, view);
                for (std::size_t i = 0; i < out.size(); ++i)
                    worst = std::max(worst, std::abs(out[i] - cache.of(layer, role)[own.first_head * head + i]));
            }
    return worst;
}

class Shards : public EachProvider {};

TEST_P(Shards, ComeTogetherBitForBitBetweenUnequalDegrees) {
    constexpr std::uint32_t kLayers = 4;
    struct Case {
        std::uint32_t heads, tensor, pipeline, to_tensor, to_pipeline;
    };
    for (const Case& c : {Case{6, 2, 1, 3, 1}, Case{4, 4, 1, 1, 1}, Case{4, 1, 1, 4, 1}, Case{4, 2, 2, 1, 4},
                          Case{4, 1, 3, 3, 1}, Case{2, 4, 1, 2, 1}, Case{1, 2, 2, 2, 2}}) {
        SCOPED_TRACE(::testing::Message() << c.heads << " heads, TP " << c.tensor << " x PP " << c.pipeline << " to TP "
                                          << c.to_tensor << " x PP " << c.to_pipeline);
        Cluster cluster(GetParam(), even(kLayers, c.heads, c.tensor, c.pipeline),
                        even(kLayers, c.heads, c.to_tensor, c.to_pipeline));
        TestCache cache(kLayers, c.heads, 20, kHeadDim);
        auto transfers = cluster.open_all(cache.manifest(7, Coding::kRaw, 1));
        std::vector<ShardedReceiver> receivers;
        for (std::uint32_t r = 0; r < cluster.decode.size(); ++r) receivers.push_back(cluster.assembly(transfers, r));
        cluster.put_all(transfers, cache);
        for (std::uint32_t r = 0; r < receivers.size(); ++r) {
            ASSERT_TRUE(receivers[r].wait(0, soon()));
            EXPECT_TRUE(receivers[r].complete());
            EXPECT_EQ(error_of(receivers[r], cluster.plan.receivers().ranks[r], cache, 0), 0.0F);
            EXPECT_NO_THROW(receivers[r].finish());
        }
        for (auto& t : transfers)
            EXPECT_TRUE(cluster.links.at({t.sender, t.receiver}).at_prefill->finish(t.out, soon()));
    }
}

TEST_P(Shards, AreOneReceiverWithTiersRevisionsAndAManifest) {
    Cluster cluster(GetParam(), even(4, 4, 2, 2), even(4, 4, 1));
    TestCache cache(4, 4, 100, kHeadDim);
    auto transfers = cluster.open_all(cache.manifest(7));
    ShardedReceiver receiver = cluster.assembly(transfers, 0);
    EXPECT_EQ(receiver.manifest(), cache.manifest(7)) << "as if one had sent it all";
    EXPECT_EQ(receiver.tier(), std::nullopt);
    EXPECT_FALSE(receiver.ready(0));
    EXPECT_FALSE(receiver.wait(3, 1, Deadline::after(20ms)));
    EXPECT_THROW((void)error_of(receiver, {{0, 4, 0, 4}}, cache, 0), InvalidArgument) << "not arrived";
    std::atomic<bool> layer_came = false;
    std::thread layer([&] { layer_came = receiver.wait(3, 1, soon()); });
    std::uint64_t seen = 0;
    std::thread revisions([&] {
        while (seen < 32)  // four senders, four tensors of each, two parts of each
            if (const auto now = receiver.wait_newer(seen, soon()).number; now > seen) seen = now;
    });
    cluster.put_all(transfers, cache);
    EXPECT_TRUE(receiver.wait(0, soon()));
    EXPECT_TRUE(receiver.wait(1, soon()));
    layer.join();
    revisions.join();
    EXPECT_TRUE(layer_came);
    EXPECT_EQ(receiver.tier(), 1u);
    const Revision all = receiver.revision();
    EXPECT_EQ(all.arrived_bytes, all.part_bytes);
    EXPECT_EQ(all.number, 32u);
    EXPECT_LT(error_of(receiver, {{0, 4, 0, 4}}, cache, 0), 0.8F);
    EXPECT_LT(error_of(receiver, {{0, 4, 0, 4}}, cache, 1), 0.05F);
    std::vector<float> out(100 * kHeadDim);
    EXPECT_THROW(
        receiver.decode(0, TensorRole::kKey, 1, TestCache(1, 1, 100, kHeadDim).view_of<MutableTensorView>(out.data())),
        InvalidArgument)
        << "one head of four";
}

TEST_P(Shards, ClimbTheLadderTogether) {
    Cluster cluster(GetParam(), even(2, 4, 2), even(2, 4, 1));
    TestCache cache(2, 4, 100, kHeadDim);
    Manifest manifest = cache.manifest(7);
    manifest.rungs = 4, manifest.parts = 5;
    auto transfers = cluster.open_all(manifest);
    ShardedReceiver receiver = cluster.assembly(transfers, 0);
    EXPECT_EQ(receiver.manifest(), manifest);
    cluster.put_all(transfers, cache);
    float before = 10;
    for (unsigned part = 0; part < manifest.parts; ++part) {
        ASSERT_TRUE(receiver.wait(part, soon()));
        const float error = error_of(receiver, {{0, 2, 0, 4}}, cache, part);
        EXPECT_LT(error, 0.7F * before) << "at part " << part;
        before = error;
    }
    EXPECT_LT(before, 0.05F);
    EXPECT_EQ(receiver.tier(), manifest.residual_part());
}

TEST_P(Shards, FailAsOneWithTheFirstErrorAndStopTheOtherSenders) {
    Cluster cluster(GetParam(), even(4, 4, 4), even(4, 4, 1));
    TestCache cache(4, 4, 500, kHeadDim);
    {
        auto transfers = cluster.open_all(cache.manifest(7), {.bytes_per_second = 200'000});
        ShardedReceiver receiver = cluster.assembly(transfers, 0);
        cluster.put_all(transfers, cache);
        ASSERT_TRUE(receiver.wait(0, 0, soon()));
        std::thread leaving([&] {
            std::this_thread::sleep_for(50ms);
            cluster.links.at({2, 0}).at_prefill->close();
        });
        const auto begin = Clock::now();
        EXPECT_THROW((void)receiver.wait(1, soon()), PeerLost);
        EXPECT_LT(Clock::now() - begin, 3s);
        leaving.join();
        EXPECT_THROW((void)receiver.wait_newer(receiver.revision().number, soon()), PeerLost) << "and stays so";
        EXPECT_TRUE(receiver.ready(0, 0)) << "what had arrived stays readable";
        const std::string reason =
            testing::error_of([&] { (void)cluster.links.at({0, 0}).at_prefill->finish(transfers[0].out, soon()); });
        expect_words(reason, "another transfer of the same request failed");
    }
    for (const std::uint32_t s : {0u, 1u, 3u}) EXPECT_TRUE(becomes_free(cluster.prefill[s])) << s;
}

TEST_P(Shards, CancelledTellEverySender) {
    Cluster cluster(GetParam(), even(2, 4, 2), even(2, 4, 1));
    TestCache cache(2, 4, 500, kHeadDim);
    {
        auto transfers = cluster.open_all(cache.manifest(7), {.bytes_per_second = 200'000});
        ShardedReceiver receiver = cluster.assembly(transfers, 0);
        cluster.put_all(transfers, cache);
        EXPECT_TRUE(receiver.cancel("the user has gone", soon()));
        EXPECT_THROW((void)receiver.wait(1, soon()), Cancelled);
        for (auto& t : transfers)
            expect_words(
                testing::error_of([&] { (void)cluster.links.at({t.sender, 0u}).at_prefill->finish(t.out, soon()); }),
                "the user has gone");
    }
    EXPECT_TRUE(becomes_free(cluster.decode[0]));
}

TEST_P(Shards, ThatThePlanDoesNotForeseeAreRefusedAtTheOfferInWords) {
    const ShardPlan plan(even(4, 4, 2), even(4, 4, 2));
    const Node prefill = node_of(GetParam()), decode = node_of(GetParam());
    Link link = connect(prefill, decode);
    TestCache cache(4, 4, 20, kHeadDim);
    const Manifest whole = cache.manifest(7);
    const auto refusal = [&](const Manifest& manifest, std::uint32_t receiver) {
        auto offering = std::async(std::launch::async, [&] {
            return testing::error_of([&] { (void)link.at_prefill->offer(manifest, soon()); });
        });
        EXPECT_THROW((void)link.at_decode->accept_offer(soon(), {.plan = &plan, .shard = receiver}), ProtocolError);
        return offering.get();
    };
    expect_words(refusal(whole, 0), "1 senders", "2");
    expect_words(refusal(plan.manifest(whole, 1, 1), 0), "to receiver 1 came to receiver 0");
    const ShardPlan other(even(4, 4, 2), even(4, 4, 1));
    expect_words(refusal(other.manifest(whole, 1, 0), 0), "1 receivers");
    Manifest wrong = plan.manifest(whole, 0, 0);
    wrong.tensors.pop_back();
    expect_words(refusal(wrong, 0), "layer 3", "heads 0 to 1", "both");
    wrong = plan.manifest(whole, 0, 0);
    wrong.tensors[0].spec.heads = 1;
    expect_words(refusal(wrong, 0), "sender 0", "K of layer 0", "head 0");
    wrong = plan.manifest(whole, 0, 0);
    wrong.tensors[0].spec.dtype = DType::kBF16;
    expect_words(refusal(wrong, 0), "bf16", "fp32");
    wrong = plan.manifest(whole, 0, 0);
    wrong.shard.owned[0].heads = 3;
    expect_words(refusal(wrong, 0), "owns other shards");
    EXPECT_EQ(decode.arena_free_bytes(), decode.arena_bytes()) << "none of them took memory";

    auto [sender, receiver] = open(link, plan.manifest(whole, 0, 0), {}, {.plan = &plan, .shard = 0});
    EXPECT_EQ(receiver.manifest().shard.sender, 0u) << "and the next one works";
}

TEST_P(Shards, OfWhichOneIsMissingTwiceThereOrOfAnotherRequestAreNotPutTogether) {
    Cluster cluster(GetParam(), even(2, 4, 2), even(2, 4, 1));
    TestCache cache(2, 4, 20, kHeadDim);
    auto transfers = cluster.open_all(cache.manifest(7));
    auto others = cluster.open_all(cache.manifest(8));
    const auto together = [&](std::vector<ShardSource> sources) {
        return testing::error_of([&] { ShardedReceiver(cluster.plan, 0, std::move(sources)); });
    };
    expect_words(together({{&transfers[0].in}}), "1 transfers more", "sender 1");
    expect_words(together({}), "2 transfers more");
    expect_words(together({{&transfers[0].in}, {&transfers[0].in}}), "sender 0", "twice");
    expect_words(together({{&transfers[0].in}, {&others[1].in}}), "number of request 7");
    EXPECT_EQ(together({{&transfers[0].in}, {&transfers[1].in}}), "no error");
}

TEST(ShardManifest, ComesBackAsItWasSentAndIsChecked) {
    const ShardPlan plan(even(4, 4, 2, 2), even(4, 4, 1));
    const Manifest manifest = plan.manifest(TestCache(4, 4, 20, kHeadDim).manifest(7), 3, 0);
    EXPECT_EQ(manifest.tensors.size(), 4u);
    EXPECT_EQ(Manifest::parse(manifest.serialize()), manifest);
    const auto refuses = [&](const auto& change, const std::string& word) {
        Manifest wrong = manifest;
        change(wrong.shard);
        expect_words(error_of([&] { wrong.validate(); }), word);
    };
    refuses([](ManifestShard& s) { s.sender = 4; }, "sender");
    refuses([](ManifestShard& s) { s.senders = 0; }, "senders");
    refuses([](ManifestShard& s) { s.receivers = kMaxRanks + 1; }, "receivers");
    refuses([](ManifestShard& s) { s.owned.clear(); }, "senders");
    refuses([](ManifestShard& s) { s.owned[0].first_head = 0; }, "does not own");
    refuses([](ManifestShard& s) { s.owned[0].layers = 1; }, "does not own");
    refuses([](ManifestShard& s) { s.owned[0].layers = ~0u; }, "layers of a shard");
    refuses([](ManifestShard& s) { s.owned[0].heads = ~0u; }, "heads of a shard");
    refuses([](ManifestShard& s) { s.owned.push_back(s.owned[0]); }, "first_layer");
}

TEST(ShardManifest, IsCutFromTheWholeCacheAlone) {
    const ShardPlan plan(even(4, 4, 2), even(4, 4, 1));
    TestCache cache(4, 4, 20, kHeadDim), other(4, 3, 20, kHeadDim), more(5, 4, 20, kHeadDim);
    EXPECT_THROW((void)plan.manifest(other.manifest(1), 0, 0), InvalidArgument) << "three heads";
    EXPECT_THROW((void)plan.manifest(more.manifest(1), 0, 0), InvalidArgument) << "a layer more";
    Manifest less = cache.manifest(1);
    less.tensors.pop_back();
    EXPECT_THROW((void)plan.manifest(less, 0, 0), InvalidArgument) << "a V less";
    EXPECT_THROW((void)plan.manifest(cache.manifest(1), 2, 0), InvalidArgument) << "no such sender";
    // Chunks of tokens stay what they are.
    Manifest chunks = cache.manifest(1);
    for (const ManifestTensor& t : cache.manifest(1).tensors) {
        chunks.tensors.push_back(t);
        chunks.tensors.back().first_token = 20;
        chunks.tensors.back().spec.tokens = 5;
    }
    const Manifest cut = plan.manifest(chunks, 1, 0);
    EXPECT_EQ(cut.tensors.size(), 16u);
    EXPECT_EQ(cut.tensors.back().first_token, 20u);
    EXPECT_EQ(cut.tensors.back().first_head, 2u);
}

INSTANTIATE_TEST_SUITE_P(Providers, Shards, ::testing::ValuesIn(tested_providers()), provider_test_name);

}  // namespace
}  // namespace lynx::testing
