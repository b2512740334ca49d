// Requests of random sizes, one after the other over each of a few pairs of nodes, on a fabric where everything goes
// wrong now and then. Each has to end in the right bytes or in a typed error, and nothing may be left behind.
// LYNX_SOAK_REQUESTS sets how many there are in all, LYNX_SOAK_SEED the script.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "core/text.hpp"
#include "faulty/faulty_fabric.hpp"
#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "stream/arrival_tag.hpp"
#include "stream/cache.hpp"
#include "stream/node_impl.hpp"
#include "stream/receive_state.hpp"
#include "stream/send_state.hpp"

namespace lynx::faulty {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPairs = 4;
constexpr std::size_t kArena = 8u << 20;
constexpr double kChance = 0.01;
constexpr auto kPatience = 30s;  // for one step; nothing should come near

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

std::size_t open_files() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

Deadline soon() {
    return Deadline::after(kPatience);
}

/// The name of a typed error; anything else is a failure.
std::string name_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const PeerLost&) {
        return "PeerLost";
    } catch (const Cancelled&) {
        return "Cancelled";
    } catch (const CorruptData&) {
        return "CorruptData";
    } catch (const std::exception& e) {
        ADD_FAILURE() << "ended otherwise: " << e.what();
        return e.what();
    }
}

Manifest random_manifest(std::uint64_t request, std::mt19937_64& random) {
    const auto between = [&](std::uint32_t least, std::uint32_t most) {
        return least + static_cast<std::uint32_t>(random() % (most - least + 1));
    };
    Manifest manifest{.request_id = request, .model = "soak", .tensors = {}};
    const std::uint32_t layers = between(1, 3);
    const bool exact = between(0, 3) == 0;
    manifest.chunk_bytes = kMinChunkBytes;
    const TensorSpec spec{.coding = !exact && between(0, 4) == 0 ? Coding::kRaw : Coding::kPlanes,
                          .dtype = DType::kBF16,
                          .heads = between(1, 2),
                          .tokens = between(0, 3) == 0 ? between(0, 3) : between(1, 200),
                          .head_dim = 64,
                          .anchor_bits = static_cast<std::uint8_t>(between(1, 8)),
                          .sink_tokens = static_cast<std::uint16_t>(between(0, 4)),
                          .exact = exact};
    manifest.rungs = spec.coding == Coding::kRaw ? 1 : static_cast<std::uint8_t>(between(1, 4));
    manifest.parts = static_cast<std::uint8_t>(exact                ? 2 + manifest.rungs
                                               : between(0, 1) == 0 ? 1
                                                                    : 1 + manifest.rungs);
    manifest.context_tokens = spec.tokens;
    for (std::uint32_t layer = 0; layer < layers; ++layer)
        for (const TensorRole role : kRoles) manifest.tensors.push_back({layer, role, spec});
    return manifest;
}

/// Two nodes, connected, and connected anew whenever that was lost.
class Pair {
   public:
    Pair(const FaultyFabric& fabric, std::size_t index)
        : prefill_({.fabric = {.backend = fabric.node(2 * index + 1)}, .arena_bytes = kArena}),
          decode_({.fabric = {.backend = fabric.node(2 * index + 2)}, .arena_bytes = kArena}),
          listener_(decode_, "127.0.0.1", 0),
          random_(index) {
        source_.resize(std::size_t{2} * 200 * 64);
        for (std::uint16_t& x : source_) x = static_cast<std::uint16_t>(0x3c00 + random_() % 0x600);
    }

    /// How it ended on the receiver's side.
    std::string run(std::uint64_t request) {
        if (!to_decode_ || to_decode_->lost() || to_prefill_->lost()) connect();
        const Manifest manifest = random_manifest(request, random_);
        auto offered = std::async(std::launch::async, [&] { return to_decode_->offer(manifest, soon()); });
        PlaneReceiver receiver = to_prefill_->accept_offer(soon()).value();
        PlaneSender sender = offered.get();
        // All of it is coded before the first chunk goes, so that the same chunks go in the same order each time.
        hold(sender, true);
        for (const ManifestTensor& t : manifest.tensors) sender.put(t.layer, t.role, view(t.spec));
        hold(sender, false);
        auto sent = std::async(std::launch::async, [&] { return send(sender); });
        std::string outcome = receive(receiver, manifest, sender);
        const std::string theirs = sent.get();
        if (theirs == "PeerLost") connect();  // the link is dead until the nodes meet again
        return outcome;
    }

    void expect_nothing_left() {
        to_decode_.reset();
        to_prefill_.reset();
        for (const Node* node : {&prefill_, &decode_}) EXPECT_EQ(node->arena_free_bytes(), node->arena_bytes());
    }

   private:
    void connect() {
        to_decode_.reset();
        to_prefill_.reset();
        auto accepted = std::async(std::launch::async, [&] { return listener_.accept(soon()); });
        to_decode_.emplace(Peer::connect(prefill_, "127.0.0.1", listener_.port(), soon()));
        to_prefill_ = accepted.get();
    }

    /// By a rate that lets nothing go for a long while, or by none.
    static void hold(const PlaneSender& sender, bool held) {
        {
            const std::lock_guard lock(sender.state()->mutex);
            TokenBucket& bucket = sender.state()->bucket;
            bucket = TokenBucket(held ? 1 : 0);
            bucket.take(1u << 20);
        }
        sender.state()->node.wake();
    }

    [[nodiscard]] TensorView view(const TensorSpec& spec) const {
        const std::int64_t h = spec.heads, t = spec.tokens, d = spec.head_dim;
        return {reinterpret_cast<const std::byte*>(source_.data()), spec.dtype, {h, t, d}, {t * d, d, 1}};
    }

    std::string send(PlaneSender& sender) {
        try {
            EXPECT_TRUE(to_decode_->finish(sender, soon())) << "hangs";
            return "right";
        } catch (...) {
            const auto error = std::current_exception();
            if (name_of(error) != "Cancelled") (void)to_decode_->cancel(sender, "the link is dead", soon());
            return name_of(error);
        }
    }

    std::string receive(PlaneReceiver& receiver, const Manifest& manifest, const PlaneSender& sender) {
        try {
            EXPECT_TRUE(receiver.wait(manifest.parts - 1U, soon())) << "hangs";
            expect_same_bytes(receiver, sender);
            to_prefill_->finish(receiver);
            return "right";
        } catch (...) {
            const auto error = std::current_exception();
            if (name_of(error) != "Cancelled") (void)to_prefill_->cancel(receiver, "it does not come whole", soon());
            return name_of(error);
        }
    }

    static void expect_same_bytes(const PlaneReceiver& receiver, const PlaneSender& sender) {
        const SlotLayout& layout = receiver.state()->layout;
        const ConstByteSpan got = receiver.state()->memory(), wanted = sender.state()->memory();
        const auto chunks = [&] {
            const std::lock_guard lock(sender.state()->mutex);
            return sender.state()->chunks;
        }();
        for (std::uint32_t n = 0; n < layout.chunks(); ++n) {
            if (chunks[n] == PlaneSender::State::Chunk::kUnused) continue;
            const Extent e = layout.chunk(n).extent;
            ASSERT_TRUE(std::ranges::equal(got.subspan(e.offset, e.bytes), wanted.subspan(e.offset, e.bytes)))
                << "chunk " << n << " of request " << receiver.manifest().request_id;
        }
    }

    Node prefill_, decode_;
    Listener listener_;
    std::optional<Peer> to_decode_, to_prefill_;
    std::mt19937_64 random_;
    std::vector<std::uint16_t> source_;
};

struct Soaked {
    std::vector<std::vector<std::string>> outcomes;  // of each pair's requests
    std::vector<FaultEvent> trace;
    FaultCounts counts;
};

Soaked soak(std::uint64_t requests, std::uint64_t seed) {
    Soaked soaked;
    soaked.outcomes.resize(kPairs);
    const FaultyFabric fabric(FaultOptions::each(kChance, seed));
    {
        std::vector<std::unique_ptr<Pair>> pairs;
        for (std::size_t i = 0; i < kPairs; ++i) pairs.push_back(std::make_unique<Pair>(fabric, i));
        {
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < kPairs; ++i)
                threads.emplace_back([&, i] {
                    for (std::uint64_t r = i; r < requests; r += kPairs)
                        soaked.outcomes[i].push_back(pairs[i]->run(r + 1));
                });
        }
        for (const auto& pair : pairs) pair->expect_nothing_left();
        EXPECT_EQ(fabric.open_regions(), 2 * kPairs) << "the arenas alone";
    }
    EXPECT_EQ(fabric.open_regions(), 0u);
    EXPECT_EQ(fabric.open_endpoints(), 0u);
    soaked.trace = fabric.trace();
    soaked.counts = fabric.counts();
    return soaked;
}

std::string describe(const FaultEvent& event) {
    const ArrivalTag tag = ArrivalTag::unpack(event.write.tag);
    return text("stream ", event.write.stream, ", slot ", tag.slot, ", chunk ", tag.chunk, ", tried ",
                event.write.tried, ": fault ", static_cast<int>(event.fault));
}

TEST(Soak, EveryRequestEndsInTheRightBytesOrATypedErrorAndLeavesNothing) {
    const std::uint64_t requests = from_environment("LYNX_SOAK_REQUESTS", 400);
    const std::uint64_t seed = from_environment("LYNX_SOAK_SEED", 1);
    const std::size_t files = open_files();
    const Soaked soaked = soak(requests, seed);
    EXPECT_EQ(open_files(), files);
    std::map<std::string, std::size_t> ended;
    for (const auto& of_pair : soaked.outcomes)
        for (const std::string& outcome : of_pair) ++ended[outcome];
    for (const auto& [outcome, count] : ended) std::cout << outcome << ": " << count << " requests\n";
    std::cout << soaked.counts.writes << " writes, " << soaked.trace.size() << " faults\n";
    EXPECT_GT(ended["right"], requests / 2);
    for (std::size_t f = 1; f < kFaults; ++f)
        EXPECT_GT(soaked.counts.faults.at(f), 0u) << "fault " << f << " never happened";
}

TEST(Soak, TheSameSeedGivesTheSameTrace) {
    const Soaked once = soak(120, 7);
    const Soaked again = soak(120, 7);
    EXPECT_EQ(once.outcomes, again.outcomes);
    for (std::size_t i = 0; i < std::min(once.trace.size(), again.trace.size()); ++i)
        ASSERT_EQ(once.trace[i], again.trace[i]) << describe(once.trace[i]) << " or " << describe(again.trace[i]);
    EXPECT_EQ(once.trace.size(), again.trace.size());
    EXPECT_NE(once.trace, soak(120, 8).trace);
}

}  // namespace
}  // namespace lynx::faulty
