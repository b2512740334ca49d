#include "lynx/sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "session/noise.hpp"

namespace lynx {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr std::size_t kBlock = 256;
constexpr std::size_t kLanes = 16;

/// What a call needs for a while and the next one of the thread again.
struct Scratch {
    std::vector<float> penalized;
    std::vector<float> block_max;
    std::vector<float> top;
};

/// The logits with the maximum of each block, so that whoever looks for large ones skips most blocks.
class Scores {
   public:
    Scores(std::span<const float> logits, std::vector<float>& block_max) : logits_(logits), block_max_(block_max) {
        block_max.clear();
        for (std::size_t at = 0; at < logits.size(); at += kBlock) {
            block_max.push_back(largest(logits.subspan(at, std::min(kBlock, logits.size() - at)), at));
        }
        max_ = *std::max_element(block_max.begin(), block_max.end());
    }

    [[nodiscard]] float max() const noexcept { return max_; }
    [[nodiscard]] std::size_t size() const noexcept { return logits_.size(); }

    /// Calls visit(token, logit) for the logits >= least(), in the order of the tokens. least() may grow meanwhile.
    template <class Least, class Visit>
    void visit_from(Least least, Visit visit) const {
        for (std::size_t b = 0; b < block_max_.size(); ++b) {
            if (block_max_[b] < least()) continue;
            const std::size_t end = std::min(logits_.size(), (b + 1) * kBlock);
            for (std::size_t i = b * kBlock; i < end; ++i) {
                if (logits_[i] >= least()) visit(static_cast<Token>(i), logits_[i]);
            }
        }
    }

   private:
    /// Written so that the compiler makes vectors of the lanes.
    static float largest(std::span<const float> block, std::size_t at) {
        std::array<float, kLanes> best;
        std::array<int, kLanes> broken{};
        best.fill(kNever);
        std::size_t i = 0;
        for (; i + kLanes <= block.size(); i += kLanes) {
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                const float x = block[i + lane];
                best[lane] = x > best[lane] ? x : best[lane];
                broken[lane] |= static_cast<int>(!(x < std::numeric_limits<float>::infinity()));
            }
        }
        for (; i < block.size(); ++i) {
            best[0] = std::max(best[0], block[i]);
            broken[0] |= static_cast<int>(!(block[i] < std::numeric_limits<float>::infinity()));
        }
        if (std::any_of(broken.begin(), broken.end(), [](int b) { return b != 0; })) {
            const auto bad = std::find_if(block.begin(), block.end(),
                                          [](float x) { return !(x < std::numeric_limits<float>::infinity()); });
            throw InvalidArgument(text("sample: the logit of token ",
                                       at + static_cast<std::size_t>(bad - block.begin()), " is ", *bad,
                                       ": the model, or the cache that it read, is broken"));
        }
        return *std::max_element(best.begin(), best.end());
    }

    std::span<const float> logits_;
    const std::vector<float>& block_max_;
    float max_;
};

/// The best of what was offered, and how far ahead it is.
struct Contest {
    Token token = -1;
    float logit = kNever;
    double best = -kInfinity;
    double second = -kInfinity;

    void offer(Token t, float x, double score) noexcept {
        if (score > best) {
            second = best;
            best = score;
            token = t;
            logit = x;
        } else {
            second = std::max(second, score);
        }
    }
};

/// What the filters leave: the logits >= cut. A token outside would come in if it gained about `enter` minus its logit;
/// one inside would go if it lost about its logit minus `leave`.
struct Cut {
    double cut = -kInfinity;
    double enter = -kInfinity;
    double leave = -kInfinity;

    void raise(double to, double enter_at, double leave_at) noexcept {
        cut = std::max(cut, to);
        enter = std::max(enter, enter_at);
        leave = std::max(leave, leave_at);
    }
};

/// The `count` largest logits, falling; all if there are fewer. Linear in the vocabulary: what cannot be among them any
/// more is passed over, and the rest is thinned out whenever it has doubled.
void select_top(const Scores& scores, std::size_t count, std::vector<float>& top) {
    top.clear();
    float least = std::numeric_limits<float>::lowest();
    const auto nth = static_cast<std::ptrdiff_t>(count);
    scores.visit_from([&] { return least; },
                      [&](Token, float x) {
                          top.push_back(x);
                          if (top.size() < 2 * count) return;
                          std::nth_element(top.begin(), top.begin() + nth - 1, top.end(), std::greater<>());
                          top.resize(count);
                          least = top.back();
                      });
    std::sort(top.begin(), top.end(), std::greater<>());
    if (top.size() > count) top.resize(count);
}

/// The largest logit below `x`.
float next_below(const Scores& scores, float x) {
    float best = kNever;
    scores.visit_from([&] { return best; }, [&](Token, float y) { best = y < x ? std::max(best, y) : best; });
    return best;
}

double log_odds(double p) {
    return p <= 0 ? -kInfinity : p >= 1 ? kInfinity : std::log(p / (1 - p));
}

void cut_top_k(const Scores& scores, std::size_t k, std::vector<float>& top, Cut& cut) {
    select_top(scores, k, top);
    if (top.size() < k) return;
    const float last = top.back();
    cut.raise(last, last, next_below(scores, last));
}

/// Behind top-k, of whose tokens alone the probabilities are.
void cut_top_p(const Scores& scores, const Sampling& s, std::vector<float>& top, Cut& cut) {
    const double t = s.temperature;
    const float max = scores.max();
    const auto mass = [&](float x) { return std::exp((static_cast<double>(x) - max) / t); };
    // What is 45 temperatures behind adds nothing that a sum over a vocabulary could show.
    const auto least =
        static_cast<float>(std::max({cut.cut, max - 45 * t, double{std::numeric_limits<float>::lowest()}}));
    double total = 0;
    scores.visit_from([&] { return least; }, [&](Token, float x) { total += mass(x); });

    // The cut is most often among the first few; look at more only if it is not.
    for (std::size_t count = 256;; count *= 16) {
        select_top(scores, count, top);
        double before = 0;  // of all that are likelier than top[i]
        for (std::size_t i = 0; i < top.size() && top[i] >= least;) {
            std::size_t end = i;
            while (end < top.size() && top[end] == top[i]) ++end;
            if (end == top.size() && count < scores.size()) break;  // there may be more like it
            const double with = before + static_cast<double>(end - i) * mass(top[i]);
            if (with >= s.top_p * total) {
                const float next = end < top.size() ? top[end] : kNever;
                const double gap = next == kNever ? 0 : static_cast<double>(top[i]) - next;
                const double p = log_odds(s.top_p);
                const double in = std::min(gap, t * (log_odds(with / total) - p));
                const double out = std::min(gap, t * (p - log_odds(before / total)));
                if (next != kNever) cut.raise(top[i], next + in, top[i] - out);
                return;
            }
            before = with;
            i = end;
        }
        if (count >= scores.size()) return;  // rounding alone: all are needed
    }
}

/// How far behind the likeliest token min-p cuts; not positive.
double below_max(const Sampling& s) {
    return s.temperature * std::log(static_cast<double>(s.min_p));
}

Cut cut_off(const Scores& scores, const Sampling& s, std::vector<float>& top) {
    Cut cut;
    if (s.top_k != 0 && s.top_k < scores.size()) cut_top_k(scores, s.top_k, top, cut);
    if (s.top_p < 1) cut_top_p(scores, s, top, cut);
    if (s.min_p > 0) {
        const double least = scores.max() + below_max(s);
        cut.raise(least, least, -kInfinity);  // who leaves: see draw
    }
    return cut;
}

Sampled greedy(const Scores& scores) {
    Contest contest;
    scores.visit_from(
        [&] { return static_cast<float>(std::max(contest.second, double{std::numeric_limits<float>::lowest()})); },
        [&](Token token, float x) { contest.offer(token, x, x); });
    return {contest.token, static_cast<float>(contest.best - contest.second)};
}

Sampled draw(const Scores& scores, const Sampling& s, std::uint64_t position, std::vector<float>& top) {
    const double t = s.temperature;
    const Cut cut = cut_off(scores, s, top);
    Noise noise(s.seed, position);
    // Scores are logit + temperature * noise: the winner of logit / temperature + noise, and differences are logits.
    Contest contest;
    const auto lowest = static_cast<double>(std::numeric_limits<float>::lowest());
    scores.visit_from([&] { return std::max({cut.cut, contest.second - t * Noise::kLargest, lowest}); },
                      [&](Token token, float x) {
                          const std::uint32_t bits = noise.bits(token);
                          if (x + t * Noise::bound(bits) > contest.second)
                              contest.offer(token, x, x + t * Noise::gumbel(bits));
                      });
    double margin = std::min(contest.best - contest.second, contest.logit - cut.leave);
    if (s.min_p > 0) {
        // It leaves once its likeliest rival is far enough ahead.
        select_top(scores, 2, top);
        const double rival = contest.logit < top[0] ? top[0] : top.size() > 1 ? top[1] : kNever;
        margin = std::min(margin, contest.logit - rival - below_max(s));
    }
    // Another one would have to come in and to win.
    if (cut.cut > lowest) {
        scores.visit_from([&] { return std::max(cut.enter - margin, lowest); },
                          [&](Token token, float x) {
                              if (x >= cut.cut) return;
                              const double behind = contest.best - x - t * Noise::gumbel(noise.bits(token));
                              margin = std::min(margin, std::max(behind, cut.enter - x));
                          });
    }
    return {contest.token, static_cast<float>(std::max(margin, 0.0))};
}

void require(bool holds, const char* name, float value, const char* wanted) {
    if (!holds) throw InvalidArgument(text("Sampling: ", name, " is ", value, ", and has to be ", wanted));
}

}  // namespace

void Sampling::validate() const {
    require(std::isfinite(temperature) && temperature >= 0, "temperature", temperature, "finite, 0 (greedy) or more");
    require(top_p > 0 && top_p <= 1, "top_p", top_p, "above 0, and 1 (off) at most");
    require(min_p >= 0 && min_p <= 1, "min_p", min_p, "from 0 (off) to 1");
    require(std::isfinite(repetition_penalty) && repetition_penalty > 0, "repetition_penalty", repetition_penalty,
            "finite and above 0; 1 is none");
}

Sampler::Sampler(Sampling sampling) : sampling_(sampling) {
    sampling_.validate();
}

Sampled Sampler::sample(std::span<const float> logits, std::uint64_t position, std::span<const Token> history) const {
    static thread_local Scratch scratch;
    if (logits.empty()) throw InvalidArgument("sample: there are no logits: give one for each token of the vocabulary");
    if (sampling_.repetition_penalty != 1) {
        scratch.penalized.assign(logits.begin(), logits.end());
        for (const Token token : history) {
            const auto i = static_cast<std::size_t>(token);
            if (token < 0 || i >= logits.size()) {
                throw InvalidArgument(text("sample: the history has token ", token, ", and the vocabulary has ",
                                           logits.size(), " tokens: give the text of this model's tokens"));
            }
            // From the logit as it came: once, however often the token is in the text.
            const float x = logits[i];
            scratch.penalized[i] = x < 0 ? x * sampling_.repetition_penalty : x / sampling_.repetition_penalty;
        }
        logits = scratch.penalized;
    }
    const Scores scores(logits, scratch.block_max);
    if (scores.max() == kNever) {
        throw InvalidArgument("sample: all logits are -inf: no token may be chosen; check what masks them");
    }
    return sampling_.temperature == 0 ? greedy(scores) : draw(scores, sampling_, position, scratch.top);
}

}  // namespace lynx
