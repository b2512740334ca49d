#include "lynx/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "lynx/error.hpp"
#include "session/noise.hpp"

namespace lynx {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
using Logits = std::vector<float>;

Logits normal_logits(std::size_t size, std::uint32_t seed, float scale = 3) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    Logits out(size);
    for (float& x : out) x = normal(random);
    return out;
}

/// What comes at any of many positions: the kept tokens, if each of them is likely enough.
std::set<Token> kept(const Sampling& sampling, const Logits& logits, const std::vector<Token>& history = {}) {
    const Sampler sampler(sampling);
    std::set<Token> out;
    for (std::uint64_t position = 0; position < 4000; ++position) {
        out.insert(sampler.sample(logits, position, history).token);
    }
    return out;
}

/// Pearson's statistic of the draws at so many positions against probabilities that sum to 1.
double chi_square(const Sampler& sampler, const Logits& logits, const std::vector<double>& probability,
                  std::uint64_t positions) {
    std::vector<double> count(logits.size());
    for (std::uint64_t position = 0; position < positions; ++position) {
        ++count[static_cast<std::size_t>(sampler.sample(logits, position, {}).token)];
    }
    double out = 0;
    for (std::size_t i = 0; i < count.size(); ++i) {
        const double expected = probability[i] * static_cast<double>(positions);
        if (expected == 0) {
            EXPECT_EQ(count[i], 0) << "token " << i << " was cut off";
            continue;
        }
        out += (count[i] - expected) * (count[i] - expected) / expected;
    }
    return out;
}

std::vector<double> softmax(const Logits& logits, double temperature, double least = -1e30) {
    std::vector<double> out;
    double total = 0;
    for (const float x : logits) total += out.emplace_back(x < least ? 0 : std::exp(x / temperature));
    for (double& p : out) p /= total;
    return out;
}

TEST(Noise, IsPhiloxWithThePublishedAnswers) {
    // Random123's kat_vectors: philox4x32, 10 rounds; the key is the seed.
    Noise zero(0, 0);
    EXPECT_EQ(zero.bits(0), 0x6627e8d5U);
    EXPECT_EQ(zero.bits(1), 0xe169c58dU);
    EXPECT_EQ(zero.bits(2), 0xbc57ac4cU);
    EXPECT_EQ(zero.bits(3), 0x9b00dbd8U);
    using Philox = r123::Philox4x32;
    const std::uint32_t ones = 0xffffffffU;
    EXPECT_EQ(Philox{}({{ones, ones, ones, ones}}, {{ones, ones}}),
              (Philox::ctr_type{{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}}));
    EXPECT_EQ(Philox{}({{0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}}, {{0xa4093822U, 0x299f31d0U}}),
              (Philox::ctr_type{{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}}));
}

TEST(Noise, OfATokenDoesNotDependOnWhatIsAskedBefore) {
    Noise forward(0x123456789abcdefULL, 1ULL << 40U);
    std::vector<std::uint32_t> bits;
    for (Token t = 0; t < 1000; ++t) bits.push_back(forward.bits(t));
    Noise backward(0x123456789abcdefULL, 1ULL << 40U);
    for (Token t = 999; t >= 0; --t) EXPECT_EQ(backward.bits(t), bits[static_cast<std::size_t>(t)]);
    Noise elsewhere(0x123456789abcdefULL, 0);
    EXPECT_NE(elsewhere.bits(0), bits[0]) << "the upper half of the position counts";
}

TEST(Noise, NeverExceedsItsBounds) {
    for (const std::uint32_t bits : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xfffffffeU, 0xffffffffU}) {
        EXPECT_TRUE(std::isfinite(Noise::gumbel(bits)));
        EXPECT_LE(Noise::gumbel(bits), Noise::bound(bits));
        EXPECT_LE(Noise::gumbel(bits), Noise::kLargest);
    }
    Noise noise(1, 1);
    for (Token t = 0; t < 100000; ++t) ASSERT_LE(Noise::gumbel(noise.bits(t)), Noise::bound(noise.bits(t)));
}

TEST(Sampler, IsGreedyAtTemperatureZeroAndTellsTheDistanceOfTheSecond) {
    EXPECT_EQ(Sampler().sample(Logits{1, 4, 3.5, -2}, 0, {}), (Sampled{1, 0.5}));
    EXPECT_EQ(Sampler().sample(Logits{1, 4, 4, -2}, 0, {}), (Sampled{1, 0})) << "the first of equals";
    EXPECT_EQ(Sampler().sample(Logits{-kInf, -5, -kInf}, 7, {}), (Sampled{1, kInf}));
    Sampling filtered;
    filtered.top_k = 1;
    EXPECT_EQ(Sampler(filtered).sample(Logits{1, 4, 3.5, -2}, 0, {}), (Sampled{1, 0.5}));
}

TEST(Sampler, FindsTheBestTwoOfAnySize) {
    for (const std::size_t size : {1UL, 2UL, 15UL, 16UL, 17UL, 255UL, 256UL, 257UL, 1000UL, 50257UL}) {
        const Logits logits = normal_logits(size, static_cast<std::uint32_t>(size));
        Logits sorted = logits;
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        const Sampled got = Sampler().sample(logits, 0, {});
        EXPECT_EQ(logits[static_cast<std::size_t>(got.token)], sorted[0]) << size;
        EXPECT_EQ(got.margin, size == 1 ? kInf : sorted[0] - sorted[1]) << size;
    }
}

TEST(Sampler, DrawsWhatTheWholeVocabularyWithAllItsNoiseWouldGive) {
    const Logits logits = normal_logits(5000, 3);
    for (const float t : {0.01F, 0.7F, 1.0F, 5.0F}) {
        Sampling sampling;
        sampling.temperature = t;
        sampling.seed = 99;
        for (std::uint64_t position = 0; position < 50; ++position) {
            Noise noise(99, position);
            std::vector<double> scores;
            for (std::size_t i = 0; i < logits.size(); ++i) {
                scores.push_back(logits[i] + double{t} * Noise::gumbel(noise.bits(static_cast<Token>(i))));
            }
            const auto best = std::max_element(scores.begin(), scores.end());
            const Sampled got = Sampler(sampling).sample(logits, position, {});
            ASSERT_EQ(got.token, best - scores.begin());
            std::nth_element(scores.begin(), scores.begin() + 1, scores.end(), std::greater<>());
            EXPECT_FLOAT_EQ(got.margin, static_cast<float>(scores[0] - scores[1]));
        }
    }
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheSoftmax) {
    // 7 degrees of freedom: a statistic above 60 comes once in 10^10 times; the seed is fixed, besides.
    const Logits logits{0, 1, 2, -1, 0.5, 1.5, -0.5, 2.5};
    Sampling sampling;
    sampling.temperature = 0.8F;
    sampling.seed = 5;
    EXPECT_LT(chi_square(Sampler(sampling), logits, softmax(logits, 0.8F), 100000), 60);
    sampling.top_k = 5;
    EXPECT_LT(chi_square(Sampler(sampling), logits, softmax(logits, 0.8F, 0.5), 100000), 60);
    EXPECT_GT(chi_square(Sampler(sampling), logits, softmax(logits, 0.7F, 0.5), 100000), 60) << "the test can fail";
}

TEST(Sampler, TendsToGreedyAsTheTemperatureFalls) {
    Sampling cold;
    cold.temperature = 1e-5F;
    for (std::uint32_t i = 0; i < 100; ++i) {
        const Logits logits = normal_logits(1000, i);
        const Sampled greedy = Sampler().sample(logits, i, {});
        if (greedy.margin < 1e-3F) continue;
        EXPECT_EQ(Sampler(cold).sample(logits, i, {}).token, greedy.token);
    }
}

TEST(Sampler, KeepsTheLargestKAndWhatEqualsTheLast) {
    Sampling s;
    s.temperature = 1;
    s.top_k = 2;
    EXPECT_EQ(kept(s, {1, 3, 2, 0}), (std::set<Token>{1, 2}));
    EXPECT_EQ(kept(s, {2, 3, 2, 0}), (std::set<Token>{0, 1, 2}));
    s.top_k = 9;
    EXPECT_EQ(kept(s, {1, 3, 2, 0}), (std::set<Token>{0, 1, 2, 3}));
}

TEST(Sampler, KeepsTheFewestThatReachTopP) {
    const auto logs = [](std::vector<float> p) {
        for (float& x : p) x = std::log(x);
        return p;
    };
    const Logits logits = logs({0.1F, 0.5F, 0.3F, 0.1F});
    Sampling s;
    s.temperature = 1;
    s.top_p = 0.45F;
    EXPECT_EQ(kept(s, logits), (std::set<Token>{1}));
    s.top_p = 0.55F;
    EXPECT_EQ(kept(s, logits), (std::set<Token>{1, 2}));
    s.top_p = 0.85F;
    EXPECT_EQ(kept(s, logits), (std::set<Token>{0, 1, 2, 3})) << "equal logits are not parted";
    s.top_p = 1e-6F;
    EXPECT_EQ(kept(s, logits), (std::set<Token>{1})) << "one stays";
    // Top-k comes first: of 0.5 and 0.3 the larger has 0.625.
    s.top_k = 2;
    s.top_p = 0.6F;
    EXPECT_EQ(kept(s, logits), (std::set<Token>{1}));
    // The temperature comes before: at 2, 0.5 and 0.3 have less of the whole.
    s.top_k = 0;
    s.temperature = 2;
    s.top_p = 0.35F;
    EXPECT_EQ(kept(s, logits), (std::set<Token>{1}));
    s.top_p = 0.45F;
    EXPECT_EQ(kept(s, logits), (std::set<Token>{1, 2}));
}

TEST(Sampler, KeepsTheMostOfAFlatVocabularyIfTopPAsksForIt) {
    const Logits logits = normal_logits(40000, 8, 0.1F);
    Sampling s;
    s.temperature = 1;
    s.top_p = 0.9F;
    Logits sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    double total = 0;
    for (const float x : logits) total += std::exp(x);
    double before = 0;
    std::size_t count = 0;
    while (before < 0.9F * total) before += std::exp(sorted[count++]);
    const float least = sorted[count - 1];
    for (std::uint64_t position = 0; position < 50; ++position) {
        ASSERT_GE(logits[static_cast<std::size_t>(Sampler(s).sample(logits, position, {}).token)], least);
    }
}

TEST(Sampler, KeepsWhatHasItsShareOfTheLikeliest) {
    Sampling s;
    s.temperature = 1;
    s.min_p = 0.3F;
    EXPECT_EQ(kept(s, {std::log(0.2F), std::log(0.6F), std::log(0.15F)}), (std::set<Token>{0, 1}));
    s.min_p = 1;
    EXPECT_EQ(kept(s, {1, 3, 2.999F, 3}), (std::set<Token>{1, 3}));
}

TEST(Sampler, PenalizesEachTokenOfTheHistoryOnce) {
    Sampling s;
    s.repetition_penalty = 2;
    EXPECT_EQ(Sampler(s).sample(Logits{4, 3, 1}, 3, std::vector<Token>{0, 0}), (Sampled{1, 1})) << "4 becomes 2";
    EXPECT_EQ(Sampler(s).sample(Logits{-1, -1.5, -9}, 3, std::vector<Token>{0}), (Sampled{1, 0.5})) << "-1 becomes -2";
    EXPECT_EQ(Sampler(s).sample(Logits{4, 3, 1}, 3, {}), (Sampled{0, 1}));
    EXPECT_EQ(Sampler().sample(Logits{4, 3, 1}, 3, std::vector<Token>{0, 77}), (Sampled{0, 1})) << "not read";
}

TEST(Sampler, DrawsTheSameWhateverElseIsKeptIfTheWinnerIs) {
    const Logits logits = normal_logits(2000, 4);
    Sampling all;
    all.temperature = 1;
    all.seed = 1234567890123ULL;
    Sampling some = all;
    some.top_k = 300;
    Logits sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    int same = 0;
    for (std::uint64_t position = 0; position < 300; ++position) {
        const Token token = Sampler(all).sample(logits, position, {}).token;
        if (logits[static_cast<std::size_t>(token)] < sorted[299]) continue;
        EXPECT_EQ(Sampler(some).sample(logits, position, {}).token, token);
        ++same;
    }
    EXPECT_GT(same, 200);
}

TEST(Sampler, MarginSeesTheEdgeOfTheCutOffs) {
    Sampling s;
    s.temperature = 1e-3F;  // the noise is small
    s.top_k = 1;
    EXPECT_NEAR(Sampler(s).sample(Logits{3, 2.75, 0}, 0, {}).margin, 0.25, 1e-6) << "the second would take its place";
    s.top_k = 0;
    s.min_p = 1;
    EXPECT_NEAR(Sampler(s).sample(Logits{3, 2.75, 0}, 0, {}).margin, 0.25, 1e-6);
    s.top_k = 1;
    s.min_p = 0;
    EXPECT_EQ(Sampler(s).sample(Logits{3, -kInf, -kInf}, 0, {}).margin, kInf);

    // With 1 and 2 nearly equal and the cut between them: the margin is no more than what parts them.
    s = Sampling{};
    s.temperature = 50;  // the noise is all
    s.top_k = 2;
    const Logits close{3, 2.00001F, 2};
    bool saw_winner_at_the_edge = false;
    for (std::uint64_t position = 0; position < 200; ++position) {
        const Sampled got = Sampler(s).sample(close, position, {});
        if (got.token == 1) {
            EXPECT_LT(got.margin, 2e-5F);
        }
        saw_winner_at_the_edge |= got.token == 1;
        Sampling three = s;
        three.top_k = 0;
        // Outside, it would have won.
        if (Sampler(three).sample(close, position, {}).token == 2) {
            EXPECT_LT(got.margin, 2e-5F);
        }
    }
    EXPECT_TRUE(saw_winner_at_the_edge);
}

TEST(Sampler, GivesTheSameTokenForLogitsThatDifferByLessThanTheMargin) {
    const Logits logits = normal_logits(500, 6);
    for (const Sampling& s : {Sampling{0.7F, 0, 1, 0, 1, 3}, Sampling{1, 20, 1, 0, 1, 3}, Sampling{1, 0, 0.8F, 0, 1, 3},
                              Sampling{1, 0, 1, 0.05F, 1, 3}, Sampling{1.3F, 50, 0.9F, 0.02F, 1, 3}}) {
        std::mt19937 random(9);
        for (std::uint64_t position = 0; position < 400; ++position) {
            const Sampled exact = Sampler(s).sample(logits, position, {});
            // Two logits then differ by less than 0.8 of it. Where top_p cuts it is an estimate, for small changes.
            const float change = 0.4F * (s.top_p < 1 ? std::min(exact.margin, 0.25F) : exact.margin);
            std::uniform_real_distribution<float> shift(-change, change);
            Logits other = logits;
            for (float& x : other) x += shift(random);
            EXPECT_EQ(Sampler(s).sample(other, position, {}).token, exact.token)
                << "top_k " << s.top_k << ", top_p " << s.top_p << ", min_p " << s.min_p << ", margin " << exact.margin;
        }
    }
}

TEST(Sampler, RefusesWhatCannotBeSampled) {
    const Sampler sampler;
    EXPECT_THROW((void)sampler.sample({}, 0, {}), InvalidArgument);
    EXPECT_THROW((void)sampler.sample(Logits{-kInf, -kInf}, 0, {}), InvalidArgument);
    Logits logits(1000, 1);
    for (const float bad : {std::nanf(""), kInf}) {
        for (const std::size_t at : {0UL, 700UL, 999UL}) {
            Logits broken = logits;
            broken[at] = bad;
            EXPECT_THROW((void)sampler.sample(broken, 0, {}), InvalidArgument);
        }
    }
    Sampling penalty;
    penalty.repetition_penalty = 1.1F;
    EXPECT_THROW((void)Sampler(penalty).sample(logits, 0, std::vector<Token>{1000}), InvalidArgument);
    EXPECT_THROW((void)Sampler(penalty).sample(logits, 0, std::vector<Token>{-1}), InvalidArgument);
}

TEST(Sampler, NeverChoosesMinusInfinity) {
    Sampling hot;
    hot.temperature = 100;
    EXPECT_EQ(kept(hot, {-kInf, 1, -kInf, 2}), (std::set<Token>{1, 3}));
    hot.top_k = 3;
    hot.top_p = 0.999F;
    EXPECT_EQ(kept(hot, {-kInf, 1, -kInf, 2}), (std::set<Token>{1, 3}));
}

TEST(Sampling, RefusesWhatMakesNoSense) {
    const auto refused = [](auto change) {
        Sampling s;
        change(s);
        EXPECT_THROW(s.validate(), InvalidArgument);
        EXPECT_THROW(Sampler{s}, InvalidArgument);
    };
    for (const float bad : {-0.1F, std::nanf(""), kInf}) {
        refused([&](Sampling& s) { s.temperature = bad; });
        refused([&](Sampling& s) { s.top_p = bad; });
        refused([&](Sampling& s) { s.min_p = bad; });
        refused([&](Sampling& s) { s.repetition_penalty = bad; });
    }
    refused([](Sampling& s) { s.top_p = 0; });
    refused([](Sampling& s) { s.repetition_penalty = 0; });
    EXPECT_NO_THROW(Sampling{}.validate());
}

}  // namespace
}  // namespace lynx
