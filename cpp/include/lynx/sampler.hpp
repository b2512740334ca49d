// Which token follows, from a model's logits: greedy, or drawn with noise that only the seed, the position and the
// token decide. Whoever has the same logits draws the same token, whether in a draft step or in a verifying pass.
#pragma once

#include <cstdint>
#include <span>

#include "lynx/export.hpp"
#include "lynx/session.hpp"

namespace lynx {

/// How tokens are chosen; the names and meanings of Hugging Face transformers, applied in its order: repetition
/// penalty, temperature, top-k, top-p, min-p. The cut-offs never part equal logits: all of them stay, or none.
struct LYNX_API Sampling {
    float temperature = 0;    ///< 0: greedy; the penalty applies, the three cut-offs change nothing
    std::uint32_t top_k = 0;  ///< keeps the k largest and what equals the last of them; 0: off
    float top_p = 1;          ///< keeps a token if all likelier ones together have less probability than this; 1: off
    float min_p = 0;  ///< keeps what is at least so probable, as a share of the likeliest token's probability; 0: off
    float repetition_penalty =
        1;                   ///< tokens of the text so far: positive logits are divided by it, negative multiplied
    std::uint64_t seed = 0;  ///< of the noise

    bool operator==(const Sampling&) const = default;
    /// Throws InvalidArgument unless temperature >= 0, 0 < top_p <= 1, 0 <= min_p <= 1 and repetition_penalty > 0, all
    /// finite.
    void validate() const;
};

struct Sampled {
    Token token = 0;
    /// How far another token was, in logits behind the penalty: about the least change in the difference of two logits
    /// that could give another one, whether it overtakes this one or a cut-off moves past one of the two. Infinite if
    /// no other token can come. Where top_p cuts it is an estimate for
    /// small changes: a large one moves every probability.
    float margin = 0;

    bool operator==(const Sampled&) const = default;
};

/// Samples as a `Sampling` says. A value without state: const and thread-safe; each thread that calls it keeps some
/// memory, of the vocabulary's size at most, for its next call.
class LYNX_API Sampler {
   public:
    /// Throws InvalidArgument as Sampling::validate does.
    explicit Sampler(Sampling sampling = {});

    /// The token at `position` of the whole text, prompt included. `logits` has one number a token of the vocabulary;
    /// -inf is never chosen. `history` is the text before `position`, and is read only if there is a penalty. Throws
    /// InvalidArgument if a logit is NaN or +inf, if none is above -inf, or if the history has a token that is not of
    /// the vocabulary.
    [[nodiscard]] Sampled sample(std::span<const float> logits, std::uint64_t position,
                                 std::span<const Token> history) const;

    [[nodiscard]] const Sampling& sampling() const noexcept { return sampling_; }

   private:
    Sampling sampling_;
};

}  // namespace lynx
