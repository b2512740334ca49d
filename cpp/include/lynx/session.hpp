// One request on the decode node: which tokens are drafted, which are verified, and what a policy may know.
//
// The method is speculative decoding with the coarse cache as the draft model (Leviathan et al., arXiv 2211.17192, for
// the greedy case; Lynx, arXiv 2607.01831, for the two tiers): the longest drafted prefix that the finer cache would
// have produced itself is committed, then one token more that the verifying pass has computed anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lynx/deadline.hpp"
#include "lynx/export.hpp"

namespace lynx {

using Token = std::int32_t;

enum class SessionState : std::uint8_t {
    kWaiting,     ///< nothing can be decoded yet
    kDrafting,    ///< the anchor is in: provisional tokens can be decoded
    kVerifying,   ///< the reference tier is in: tokens can be verified
    kDone,        ///< every token wanted has been committed
    kAnchorOnly,  ///< ended without the reference tier: the tokens are provisional for ever, and say so
};

/// What a policy decides on; a value, taken at one moment.
struct Snapshot {
    bool anchor_ready = false;     ///< drafting is possible
    bool residual_ready = false;   ///< the reference tier is complete: verifying is possible
    double anchor_fraction = 0;    ///< of the anchor's bytes that have arrived, 0-1
    double residual_fraction = 0;  ///< of the bytes behind the anchor, 0-1
    std::uint32_t drafted = 0;     ///< provisional tokens outstanding
    std::uint32_t committed = 0;   ///< verified tokens, without the one that prefill sampled
    std::uint32_t max_tokens = 0;  ///< wanted in all
    bool can_draft = false;  ///< anchor_ready, and one more token would be within max_tokens and before an end token
    double elapsed_s = 0;    ///< since the session began
};

/// What one verifying pass did.
struct Verdict {
    std::uint32_t accepted = 0;      ///< drafts that the finer cache confirms
    std::uint32_t rolled_back = 0;   ///< drafts taken back
    std::vector<Token> committed;    ///< the accepted drafts, then the token after them
    std::uint32_t rows_to_drop = 0;  ///< K/V rows at the cache's end that belong to drafts taken back
};

struct Tally {
    std::uint32_t drafted = 0;      ///< tokens ever drafted
    std::uint32_t accepted = 0;     ///< of them confirmed
    std::uint32_t rolled_back = 0;  ///< of them taken back
    std::uint32_t rollbacks = 0;    ///< verifying passes that took something back
    std::uint32_t passes = 0;       ///< verifying passes
};

/// The ledger: committed tokens are never taken back, drafted ones may be. Not thread-safe: for one thread at a time.
class LYNX_API Session {
   public:
    /// `first_token` is the one that prefill sampled; `end_tokens` stop the text after one of them is committed.
    /// Throws InvalidArgument for max_tokens 0.
    Session(Token first_token, std::uint32_t max_tokens, std::vector<Token> end_tokens = {});

    /// Tells what has arrived. Readiness never goes back: once true, it stays. Fractions are clamped to 0-1.
    void observe(double anchor_fraction, double residual_fraction, bool anchor_ready, bool residual_ready);
    [[nodiscard]] Snapshot snapshot() const;
    [[nodiscard]] SessionState state() const noexcept;
    [[nodiscard]] bool done() const noexcept {
        return state() == SessionState::kDone || state() == SessionState::kAnchorOnly;
    }

    /// The token whose successor a draft step computes: the last one drafted, or committed.
    [[nodiscard]] Token last() const noexcept;
    /// Adds a provisional token. Throws InvalidArgument where can_draft is false.
    void draft(Token token);
    /// The tokens a verifying pass runs over: the last committed one, then the drafts. Valid until the next call.
    [[nodiscard]] std::span<const Token> pending() const noexcept;
    /// `predicted[i]` is what the finer cache gives after pending()[i]. Throws InvalidArgument if the lengths differ or
    /// the reference tier is not complete: no token of unknown precision is ever called verified.
    Verdict verify(std::span<const Token> predicted);
    /// Ends a request whose reference tier will not come. Its drafts stay provisional.
    void end_anchor_only();

    /// Decoded from the transferred cache and verified, in order.
    [[nodiscard]] std::span<const Token> committed() const noexcept;
    /// The provisional ones behind them.
    [[nodiscard]] std::span<const Token> drafted() const noexcept;
    [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

   private:
    [[nodiscard]] bool is_end(Token token) const noexcept;
    [[nodiscard]] bool can_draft() const noexcept;

    std::vector<Token> tokens_;  // the first token, the committed ones, then the drafted ones
    std::size_t committed_ = 1;  // of them, counted with the first token
    std::uint32_t max_tokens_;
    std::vector<Token> end_tokens_;
    Tally tally_;
    bool anchor_ready_ = false;
    bool residual_ready_ = false;
    double anchor_fraction_ = 0;
    double residual_fraction_ = 0;
    bool ended_ = false;
    bool anchor_only_ = false;
    Clock::time_point start_ = Clock::now();
};

}  // namespace lynx
