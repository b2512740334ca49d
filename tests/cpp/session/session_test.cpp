#include "lynx/session.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "lynx/error.hpp"

namespace lynx {
namespace {

using Tokens = std::vector<Token>;

Tokens copy(std::span<const Token> tokens) {
    return {tokens.begin(), tokens.end()};
}

Session drafting(std::uint32_t max_tokens, Tokens end_tokens = {}) {
    Session s(100, max_tokens, std::move(end_tokens));
    s.observe(1, 0, true, false);
    return s;
}

void residual_arrives(Session& s) {
    s.observe(1, 1, true, true);
}

TEST(Session, WalksThroughItsStatesAsTheTiersArrive) {
    Session s(100, 1);
    EXPECT_EQ(s.state(), SessionState::kWaiting);
    s.observe(1, 0.5, true, false);
    EXPECT_EQ(s.state(), SessionState::kDrafting);
    residual_arrives(s);
    EXPECT_EQ(s.state(), SessionState::kVerifying);
    s.verify(Tokens{7});
    EXPECT_EQ(s.state(), SessionState::kDone);
    EXPECT_EQ(copy(s.committed()), Tokens{7});
}

TEST(Session, CommitsTheAcceptedPrefixAndTheTokenAfterIt) {
    Session s = drafting(10);
    for (const Token t : {1, 2, 3, 4}) s.draft(t);
    EXPECT_EQ(copy(s.pending()), (Tokens{100, 1, 2, 3, 4}));
    residual_arrives(s);
    const Verdict v = s.verify(Tokens{1, 2, 9, 4, 5});
    EXPECT_EQ(v.accepted, 2u);
    EXPECT_EQ(v.rolled_back, 2u);
    EXPECT_EQ(v.rows_to_drop, 2u);
    EXPECT_EQ(v.committed, (Tokens{1, 2, 9}));
    EXPECT_EQ(copy(s.committed()), (Tokens{1, 2, 9}));
    EXPECT_TRUE(s.drafted().empty());
    EXPECT_EQ(s.last(), 9);
    EXPECT_EQ(s.tally().rollbacks, 1u);
}

TEST(Session, CommitsABonusTokenWhenEveryDraftIsAccepted) {
    Session s = drafting(10);
    s.draft(1);
    s.draft(2);
    residual_arrives(s);
    const Verdict v = s.verify(Tokens{1, 2, 3});
    EXPECT_EQ(v.committed, (Tokens{1, 2, 3}));
    EXPECT_EQ(v.rows_to_drop, 0u);
    EXPECT_EQ(s.tally().rollbacks, 0u);
}

TEST(Session, VerifyingWithoutDraftsIsAnOrdinaryDecodeStep) {
    Session s(100, 3);
    residual_arrives(s);
    for (const Token t : {5, 6, 7}) EXPECT_EQ(s.verify(Tokens{t}).committed, Tokens{t});
    EXPECT_TRUE(s.done());
    EXPECT_EQ(copy(s.committed()), (Tokens{5, 6, 7}));
}

TEST(Session, NeverCommitsMoreThanMaxTokens) {
    Session s = drafting(2);
    s.draft(1);
    s.draft(2);
    EXPECT_FALSE(s.snapshot().can_draft);
    EXPECT_THROW(s.draft(3), InvalidArgument);
    residual_arrives(s);
    EXPECT_EQ(s.verify(Tokens{1, 2, 3}).committed, (Tokens{1, 2}));
    EXPECT_TRUE(s.done());
}

TEST(Session, StopsAtAnEndTokenWhetherDraftedOrPredicted) {
    Session drafted = drafting(10, {0});
    drafted.draft(1);
    drafted.draft(0);
    EXPECT_FALSE(drafted.snapshot().can_draft);
    residual_arrives(drafted);
    EXPECT_EQ(drafted.verify(Tokens{1, 0, 5}).committed, (Tokens{1, 0}));
    EXPECT_TRUE(drafted.done());

    Session predicted = drafting(10, {0});
    predicted.draft(1);
    residual_arrives(predicted);
    EXPECT_EQ(predicted.verify(Tokens{0, 5}).committed, Tokens{0});
    EXPECT_TRUE(predicted.done());
}

TEST(Session, RollsBackADraftedEndTokenThatTheFinerCacheDoesNotProduce) {
    Session s = drafting(10, {0});
    s.draft(0);
    residual_arrives(s);
    EXPECT_EQ(s.verify(Tokens{4, 5}).committed, Tokens{4});
    EXPECT_FALSE(s.done());
    EXPECT_TRUE(s.snapshot().can_draft);
}

TEST(Session, EndsAtOnceIfPrefillSampledAnEndToken) {
    EXPECT_TRUE(Session(0, 5, {0}).done());
}

TEST(Session, RefusesToVerifyBeforeTheReferenceTierIsThere) {
    Session s = drafting(10);
    s.draft(1);
    EXPECT_THROW(s.verify(Tokens{1, 2}), InvalidArgument);
    EXPECT_TRUE(s.committed().empty());
}

TEST(Session, RefusesToDraftBeforeTheAnchorIsThere) {
    Session s(100, 4);
    EXPECT_THROW(s.draft(1), InvalidArgument);
}

TEST(Session, RefusesPredictionsOfAnotherLength) {
    Session s = drafting(10);
    s.draft(1);
    residual_arrives(s);
    EXPECT_THROW(s.verify(Tokens{1}), InvalidArgument);
    EXPECT_EQ(s.drafted().size(), 1u) << "a refused call changes nothing";
}

TEST(Session, LabelsWhatEndsOnTheAnchorAlone) {
    Session s = drafting(2);
    s.draft(1);
    s.end_anchor_only();
    EXPECT_EQ(s.state(), SessionState::kAnchorOnly);
    EXPECT_TRUE(s.committed().empty());
    EXPECT_EQ(copy(s.drafted()), Tokens{1});
    residual_arrives(s);
    EXPECT_THROW(s.verify(Tokens{1, 2}), InvalidArgument) << "it has ended";
}

TEST(Session, ReadinessNeverGoesBack) {
    Session s = drafting(4);
    s.observe(0.2, 0, false, false);
    EXPECT_TRUE(s.snapshot().anchor_ready);
}

}  // namespace
}  // namespace lynx
