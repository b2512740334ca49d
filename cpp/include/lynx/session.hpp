// One request on the decode node: which tokens are drafted, which are verified, and what a policy may know.
//
// The method is speculative decoding with the coarse cache as the draft model (Leviathan et al., arXiv 2211.17192, for
// the idea; Lynx, arXiv 2607.01831, for the two tiers): the longest drafted prefix that the finer cache would have
// produced itself is committed, then one token more that the verifying pass has computed anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

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

/// What the decode loop knows of the transfer and of its own steps. Parts are counted as the manifest counts them: 0 is
/// the anchor.
struct Progress {
    std::int32_t part = -1;          ///< the finest that all layers have, with every part before it; -1: none
    std::int32_t held = -1;          ///< the finest that every layer of the engine's cache has been brought to
    std::int32_t reference = -1;     ///< completes the reference tier, whose output is committed; -1: none is sent
    std::uint32_t parts = 1;         ///< sent in all
    std::uint32_t layers = 0;        ///< of the model
    std::uint32_t layers_ready = 0;  ///< from layer 0 on, those that have the reference tier
    double anchor_fraction = 0;      ///< of the anchor's bytes that have arrived, 0-1
    double residual_fraction = 0;    ///< of all bytes behind the anchor, 0-1
    double bytes_left = 0;           ///< until the reference tier is complete
    double part_bytes_left = 0;      ///< until the part after `part` is
    double bytes_per_second = 0;     ///< at which they have arrived; 0: unknown
    double draft_s = 0;              ///< a draft step took, in the mean; 0: unknown
    double pass_s = 0;               ///< a pass over drafts computed, in the mean, its waits not counted; 0: unknown
    double elapsed_s = 0;            ///< since the request began
};

/// What a policy decides on; a value, taken at one moment.
struct Snapshot : Progress {
    bool anchor_ready = false;       ///< drafting is possible
    bool reference_ready = false;    ///< the reference tier is complete
    bool verifying = false;          ///< a verifying pass is under way and waits for its next layer
    std::uint32_t drafted = 0;       ///< provisional tokens outstanding
    std::int32_t checked_part = -1;  ///< the part on which the oldest of them was made, or last checked; -1: none
    std::uint32_t committed = 0;     ///< verified tokens, without the one that prefill sampled
    std::uint32_t max_tokens = 0;    ///< wanted in all
    bool can_draft = false;  ///< anchor_ready, and one more token is within max_tokens and before the text's end
    double margin = std::numeric_limits<double>::infinity();  ///< of the last draft over its runner-up, in logits
};

/// What one verifying pass did.
struct Verdict {
    std::uint32_t accepted = 0;     ///< drafts that the finer cache confirms
    std::uint32_t rolled_back = 0;  ///< drafts taken back
    std::vector<Token> committed;   ///< the accepted drafts, then the token after them if it was not among them
};

/// What one pass at a rung below the reference tier did. All of it is provisional.
struct Refinement {
    std::uint32_t accepted = 0;     ///< drafts that the rung's cache confirms
    std::uint32_t rolled_back = 0;  ///< drafts taken back
    std::optional<Token> drafted;   ///< the rung's own token behind the accepted ones, unless the text ends there
};

struct Tally {
    std::uint32_t drafted = 0;      ///< tokens ever drafted
    std::uint32_t accepted = 0;     ///< of them confirmed by the reference tier
    std::uint32_t rolled_back = 0;  ///< of them taken back
    std::uint32_t rollbacks = 0;    ///< passes that took something back
    std::uint32_t passes = 0;       ///< verifying passes
    std::uint32_t refinements = 0;  ///< passes at a rung
};

/// The text so far, the first token included: does it stop behind its last token? For stop strings. Called once for
/// each token that is drafted or committed, from within the Session's members; what it throws passes through.
using TextEnds = std::function<bool(std::span<const Token>)>;

/// The ledger: committed tokens are never taken back, drafted ones may be. Not thread-safe: for one thread at a time.
class LYNX_API Session {
   public:
    /// `first_token` is the one that prefill sampled; the text stops behind one of `end_tokens`, and where `ends` says
    /// so. Throws InvalidArgument for max_tokens 0.
    Session(Token first_token, std::uint32_t max_tokens, std::vector<Token> end_tokens = {}, TextEnds ends = nullptr);

    /// Tells what has arrived. Readiness never goes back: the finest part, and the layers ready, only grow. Fractions
    /// are clamped to 0-1.
    void observe(const Progress& progress);
    [[nodiscard]] Snapshot snapshot() const;
    [[nodiscard]] SessionState state() const noexcept;
    [[nodiscard]] bool done() const noexcept {
        return state() == SessionState::kDone || state() == SessionState::kAnchorOnly;
    }

    /// The token whose successor a draft step computes: the last one drafted, or committed.
    [[nodiscard]] Token last() const noexcept;
    /// Adds a provisional token, which was `margin` ahead of its runner-up. Throws InvalidArgument where can_draft is
    /// false.
    void draft(Token token, double margin = std::numeric_limits<double>::infinity());
    /// The tokens a pass runs over: the last committed one, then the drafts. Valid until the next call.
    [[nodiscard]] std::span<const Token> pending() const noexcept;
    /// A verifying pass begins: until verify() the snapshot says so. Throws InvalidArgument if no layer has the
    /// reference tier.
    void begin_verify();
    /// `predicted[i]` is what the finer cache gives after pending()[i]. It may be shorter than pending(): drafts that
    /// were made while the pass ran stay, provisional as they are, if it confirms the first of them. Throws
    /// InvalidArgument if the length is 0 or too long or the reference tier is not complete: no token of unknown
    /// precision is ever called verified.
    Verdict verify(std::span<const Token> predicted);
    /// The same for a pass on `part`, below the reference tier: nothing is committed, but the drafts are now what that
    /// part gives. `margins`, if given, are those of `predicted`. Throws InvalidArgument if there is no draft, the
    /// lengths differ, or `part` is not complete.
    Refinement refine(std::int32_t part, std::span<const Token> predicted, std::span<const double> margins = {});
    /// Ends a request whose reference tier will not come. Its drafts stay provisional.
    void end_anchor_only();

    /// Decoded from the transferred cache and verified, in order.
    [[nodiscard]] std::span<const Token> committed() const noexcept;
    /// The provisional ones behind them.
    [[nodiscard]] std::span<const Token> drafted() const noexcept;
    [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

   private:
    [[nodiscard]] bool text_ends() const;
    [[nodiscard]] bool can_draft() const noexcept;
    [[nodiscard]] bool reference_ready() const noexcept;
    void roll_back(std::size_t kept) noexcept;

    std::vector<Token> tokens_;  // the first token, the committed ones, then the drafted ones
    std::size_t committed_ = 1;  // of them, counted with the first token
    std::uint32_t max_tokens_;
    std::vector<Token> end_tokens_;
    TextEnds ends_;
    Tally tally_;
    Progress progress_;
    std::int32_t checked_part_ = -1;
    double margin_ = std::numeric_limits<double>::infinity();
    bool last_ends_ = false;  // does the text stop behind the last of tokens_?
    bool verifying_ = false;
    bool ended_ = false;
    bool anchor_only_ = false;
};

}  // namespace lynx
