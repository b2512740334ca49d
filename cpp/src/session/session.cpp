#include "lynx/session.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

Session::Session(Token first_token, std::uint32_t max_tokens, std::vector<Token> end_tokens)
    : tokens_{first_token}, max_tokens_(max_tokens), end_tokens_(std::move(end_tokens)) {
    if (max_tokens == 0) throw InvalidArgument("max_tokens is 0; ask for at least one token");
    ended_ = is_end(first_token);
}

void Session::observe(double anchor_fraction, double residual_fraction, bool anchor_ready, bool residual_ready) {
    anchor_fraction_ = std::clamp(anchor_fraction, 0.0, 1.0);
    residual_fraction_ = std::clamp(residual_fraction, 0.0, 1.0);
    anchor_ready_ = anchor_ready_ || anchor_ready || residual_ready;
    residual_ready_ = residual_ready_ || residual_ready;
}

Snapshot Session::snapshot() const {
    return {.anchor_ready = anchor_ready_,
            .residual_ready = residual_ready_,
            .anchor_fraction = anchor_fraction_,
            .residual_fraction = residual_fraction_,
            .drafted = static_cast<std::uint32_t>(drafted().size()),
            .committed = static_cast<std::uint32_t>(committed().size()),
            .max_tokens = max_tokens_,
            .can_draft = can_draft(),
            .elapsed_s = std::chrono::duration<double>(Clock::now() - start_).count()};
}

SessionState Session::state() const noexcept {
    if (anchor_only_) return SessionState::kAnchorOnly;
    if (ended_) return SessionState::kDone;
    if (residual_ready_) return SessionState::kVerifying;
    return anchor_ready_ ? SessionState::kDrafting : SessionState::kWaiting;
}

bool Session::is_end(Token token) const noexcept {
    return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

bool Session::can_draft() const noexcept {
    // tokens_ holds the first token too, which does not count towards max_tokens.
    return anchor_ready_ && !done() && tokens_.size() <= max_tokens_ && !is_end(tokens_.back());
}

Token Session::last() const noexcept {
    return tokens_.back();
}

void Session::draft(Token token) {
    if (!can_draft())
        throw InvalidArgument(text("token ", token, " was drafted; ",
                                   !anchor_ready_ ? "the anchor has not arrived"
                                   : done()       ? "the request has ended"
                                   : is_end(tokens_.back())
                                       ? "the last draft ended the text"
                                       : text("max_tokens (", max_tokens_, ") are drafted or committed")));
    tokens_.push_back(token);
    tally_.drafted += 1;
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

Verdict Session::verify(std::span<const Token> predicted) {
    if (!residual_ready_) throw InvalidArgument("a verifying pass was made; the reference tier has not arrived");
    if (done()) throw InvalidArgument("a verifying pass was made; the request has ended");
    const auto drafts = drafted();
    if (predicted.size() != drafts.size() + 1)
        throw InvalidArgument(
            text("verify was given ", predicted.size(), " predictions; pending() has ", drafts.size() + 1, " tokens"));

    Verdict verdict;
    const auto [draft_end, _] = std::mismatch(drafts.begin(), drafts.end(), predicted.begin());
    verdict.accepted = static_cast<std::uint32_t>(draft_end - drafts.begin());
    verdict.rolled_back = static_cast<std::uint32_t>(drafts.size()) - verdict.accepted;
    // Each draft's K/V row was written with the token itself; the row of the last one committed now is not there yet.
    verdict.rows_to_drop = verdict.rolled_back;

    // An end token or the limit may stand among the accepted drafts only as the last of them: can_draft() stops there.
    verdict.committed.assign(drafts.begin(), draft_end);
    const bool full = committed().size() + verdict.accepted >= max_tokens_;
    const bool ended = !verdict.committed.empty() && is_end(verdict.committed.back());
    if (!full && !ended) verdict.committed.push_back(predicted[verdict.accepted]);

    tokens_.resize(committed_);
    tokens_.insert(tokens_.end(), verdict.committed.begin(), verdict.committed.end());
    committed_ = tokens_.size();

    tally_.passes += 1;
    tally_.accepted += verdict.accepted;
    tally_.rolled_back += verdict.rolled_back;
    if (verdict.rolled_back != 0) tally_.rollbacks += 1;
    ended_ = committed().size() >= max_tokens_ || is_end(tokens_.back());
    return verdict;
}

void Session::end_anchor_only() {
    if (!done()) anchor_only_ = true;
}

}  // namespace lynx
