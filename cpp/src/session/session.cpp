#include "lynx/session.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

Session::Session(Token first_token, std::uint32_t max_tokens, std::vector<Token> end_tokens, TextEnds ends)
    : tokens_{first_token}, max_tokens_(max_tokens), end_tokens_(std::move(end_tokens)), ends_(std::move(ends)) {
    if (max_tokens == 0) throw InvalidArgument("max_tokens is 0; ask for at least one token");
    ended_ = last_ends_ = text_ends();
}

void Session::observe(const Progress& progress) {
    const auto part = std::max(progress_.part, progress.part);
    const auto layers_ready = std::max(progress_.layers_ready, progress.layers_ready);
    progress_ = progress;
    progress_.part = part;
    progress_.layers_ready = layers_ready;
    progress_.anchor_fraction = std::clamp(progress.anchor_fraction, 0.0, 1.0);
    progress_.residual_fraction = std::clamp(progress.residual_fraction, 0.0, 1.0);
}

Snapshot Session::snapshot() const {
    Snapshot s{progress_};
    s.anchor_ready = progress_.part >= 0;
    s.reference_ready = reference_ready();
    s.verifying = verifying_;
    s.drafted = static_cast<std::uint32_t>(drafted().size());
    s.checked_part = drafted().empty() ? -1 : checked_part_;
    s.committed = static_cast<std::uint32_t>(committed().size());
    s.max_tokens = max_tokens_;
    s.can_draft = can_draft();
    s.margin = margin_;
    return s;
}

SessionState Session::state() const noexcept {
    if (anchor_only_) return SessionState::kAnchorOnly;
    if (ended_) return SessionState::kDone;
    if (reference_ready()) return SessionState::kVerifying;
    return progress_.part >= 0 ? SessionState::kDrafting : SessionState::kWaiting;
}

bool Session::text_ends() const {
    return std::find(end_tokens_.begin(), end_tokens_.end(), tokens_.back()) != end_tokens_.end() ||
           (ends_ && ends_(tokens_));
}

bool Session::can_draft() const noexcept {
    // tokens_ holds the first token too, which does not count towards max_tokens.
    return progress_.part >= 0 && !done() && tokens_.size() <= max_tokens_ && !last_ends_;
}

bool Session::reference_ready() const noexcept {
    return progress_.reference >= 0 && progress_.part >= progress_.reference;
}

Token Session::last() const noexcept {
    return tokens_.back();
}

void Session::draft(Token token, double margin) {
    if (!can_draft())
        throw InvalidArgument(text("token ", token, " was drafted; ",
                                   progress_.part < 0 ? "the anchor has not arrived"
                                   : done()           ? "the request has ended"
                                   : last_ends_ ? "the last draft ended the text"
                                                : text("max_tokens (", max_tokens_, ") are drafted or committed")));
    if (drafted().empty()) checked_part_ = progress_.held;
    tokens_.push_back(token);
    margin_ = margin;
    tally_.drafted += 1;
    last_ends_ = text_ends();
}

std::span<const Token> Session::pending() const noexcept {
    return std::span(tokens_).subspan(committed_ - 1);
}

std::span<const Token> Session::committed() const noexcept {
    return std::span(tokens_).subspan(1, committed_ - 1);
}

std::span<const Token> Session::drafted() const noexcept {
    return std::span(tokens_).subspan(committed_);
}

void Session::roll_back(std::size_t kept) noexcept {
    const auto gone = static_cast<std::uint32_t>(drafted().size() - kept);
    if (gone == 0) return;
    tokens_.resize(committed_ + kept);
    tally_.rolled_back += gone;
    tally_.rollbacks += 1;
    // What is followed by a draft did not end the text.
    last_ends_ = false;
}

void Session::begin_verify() {
    if (progress_.layers_ready == 0 && !reference_ready())
        throw InvalidArgument("a verifying pass was begun; no layer of the reference tier has arrived");
    if (done()) throw InvalidArgument("a verifying pass was begun; the request has ended");
    if (verifying_) throw InvalidArgument("a verifying pass was begun; another is under way");
    verifying_ = true;
}

Verdict Session::verify(std::span<const Token> predicted) {
    if (!reference_ready()) throw InvalidArgument("a verifying pass was made; the reference tier has not arrived");
    if (done()) throw InvalidArgument("a verifying pass was made; the request has ended");
    const auto drafts = drafted();
    if (predicted.empty() || predicted.size() > drafts.size() + 1)
        throw InvalidArgument(
            text("verify was given ", predicted.size(), " predictions; pending() has ", drafts.size() + 1, " tokens"));
    verifying_ = false;

    // Every draft that is confirmed: the pass's last prediction may confirm one that was made while it ran.
    const auto checked = std::min(predicted.size(), drafts.size());
    const auto wrong =
        std::mismatch(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(checked), predicted.begin());
    const auto accepted = static_cast<std::size_t>(wrong.first - drafts.begin());

    Verdict verdict;
    verdict.accepted = static_cast<std::uint32_t>(accepted);
    verdict.committed.assign(drafts.begin(), wrong.first);
    if (accepted < predicted.size()) {
        verdict.rolled_back = static_cast<std::uint32_t>(drafts.size() - accepted);
        roll_back(accepted);
        // The limit or the text's end may stand among the drafts only as the last of them: can_draft() stops there.
        if (committed().size() + accepted < max_tokens_ && !last_ends_) {
            verdict.committed.push_back(predicted[accepted]);
            tokens_.push_back(predicted[accepted]);
            last_ends_ = text_ends();
        }
    }
    committed_ += verdict.committed.size();
    tally_.passes += 1;
    tally_.accepted += verdict.accepted;
    ended_ = committed().size() >= max_tokens_ || (drafted().empty() && last_ends_);
    return verdict;
}

Refinement Session::refine(std::int32_t part, std::span<const Token> predicted, std::span<const double> margins) {
    const auto drafts = drafted();
    if (drafts.empty() || done()) throw InvalidArgument("a refining pass was made; there is no draft to check");
    // What a verifying pass runs over has to stand until its verdict.
    if (verifying_) throw InvalidArgument("a refining pass was made; a verifying one is under way");
    if (part < 0 || part > progress_.part)
        throw InvalidArgument(text("a refining pass was made on part ", part, "; part ", progress_.part,
                                   " is the finest that is complete"));
    if (predicted.size() != drafts.size() + 1 || (!margins.empty() && margins.size() != predicted.size()))
        throw InvalidArgument(text("refine was given ", predicted.size(), " predictions and ", margins.size(),
                                   " margins; pending() has ", drafts.size() + 1, " tokens"));

    const auto accepted =
        static_cast<std::size_t>(std::mismatch(drafts.begin(), drafts.end(), predicted.begin()).first - drafts.begin());
    Refinement refinement{.accepted = static_cast<std::uint32_t>(accepted),
                          .rolled_back = static_cast<std::uint32_t>(drafts.size() - accepted),
                          .drafted = {}};
    roll_back(accepted);
    tally_.refinements += 1;
    checked_part_ = part;
    if (can_draft()) {
        refinement.drafted = predicted[accepted];
        draft(predicted[accepted], margins.empty() ? std::numeric_limits<double>::infinity() : margins[accepted]);
        checked_part_ = part;  // where none of the drafts was right, draft() took this one for a fresh one
    }
    return refinement;
}

void Session::end_anchor_only() {
    if (!done()) anchor_only_ = true;
}

}  // namespace lynx
