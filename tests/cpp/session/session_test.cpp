#include "lynx/session.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "lynx/error.hpp"

namespace lynx {
namespace {

using Tokens = std::vector<Token>;

Tokens copy(std::span<const Token> tokens) {
    return {tokens.begin(), tokens.end()};
}

Progress arrived(std::int32_t part) {
    Progress p;
    p.part = p.held = part;
    p.reference = 1;
    p.parts = 2;
    p.layers = 2;
    p.layers_ready = part >= 1 ? 2 : 0;
    p.anchor_fraction = part >= 0 ? 1 : 0.5;
    return p;
}

Session drafting(std::uint32_t max_tokens, Tokens end_tokens = {}) {
    Session s(100, max_tokens, std::move(end_tokens));
    s.observe(arrived(0));
    return s;
}

void residual_arrives(Session& s) {
    s.observe(arrived(1));
}

TEST(Session, WalksThroughItsStatesAsTheTiersArrive) {
    Session s(100, 1);
    EXPECT_EQ(s.state(), SessionState::kWaiting);
    s.observe(arrived(0));
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
    EXPECT_THROW(s.verify(Tokens{}), InvalidArgument);
    EXPECT_THROW(s.verify(Tokens{1, 2, 3}), InvalidArgument);
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
    s.observe(arrived(-1));
    EXPECT_TRUE(s.snapshot().anchor_ready);
    EXPECT_EQ(s.snapshot().anchor_fraction, 0.5) << "what is told besides is passed on";
}

TEST(Session, DraftsMadeWhileThePassRanStayIfItConfirmsTheFirst) {
    Session s = drafting(10);
    for (const Token t : {1, 2}) s.draft(t);
    Progress first_layer = arrived(0);
    first_layer.layers_ready = 1;
    s.observe(first_layer);
    s.begin_verify();
    EXPECT_TRUE(s.snapshot().verifying);
    for (const Token t : {3, 4, 5}) s.draft(t);
    residual_arrives(s);
    const Verdict v = s.verify(Tokens{1, 2, 3});
    EXPECT_FALSE(s.snapshot().verifying);
    EXPECT_EQ(v.accepted, 3u);
    EXPECT_EQ(v.rolled_back, 0u);
    EXPECT_EQ(v.committed, (Tokens{1, 2, 3}));
    EXPECT_EQ(copy(s.drafted()), (Tokens{4, 5}));
    EXPECT_EQ(copy(s.pending()), (Tokens{3, 4, 5}));
    EXPECT_EQ(s.snapshot().checked_part, 0);
}

TEST(Session, DraftsMadeWhileThePassRanGoIfItDoesNot) {
    for (const bool in_the_pass : {false, true}) {
        Session s = drafting(10);
        for (const Token t : {1, 2, 3, 4}) s.draft(t);
        residual_arrives(s);
        const Verdict v = s.verify(in_the_pass ? Tokens{1, 9, 3} : Tokens{1, 2, 9});
        EXPECT_EQ(v.accepted, in_the_pass ? 1u : 2u);
        EXPECT_EQ(v.rolled_back, in_the_pass ? 3u : 2u);
        EXPECT_EQ(v.committed.back(), 9);
        EXPECT_TRUE(s.drafted().empty());
        EXPECT_TRUE(s.snapshot().can_draft);
    }
}

TEST(Session, AnEndAmongTheDraftsOfARunningPassEndsTheTextWhenConfirmed) {
    Session s = drafting(10, {0});
    for (const Token t : {1, 0}) s.draft(t);
    residual_arrives(s);
    EXPECT_EQ(s.verify(Tokens{1, 0}).committed, (Tokens{1, 0})) << "the pass was over [100, 1] alone";
    EXPECT_TRUE(s.done());

    Session limited = drafting(2);
    for (const Token t : {1, 2}) limited.draft(t);
    residual_arrives(limited);
    EXPECT_EQ(limited.verify(Tokens{1, 2}).committed, (Tokens{1, 2}));
    EXPECT_TRUE(limited.done());
}

TEST(Session, NothingElseIsPassedOverWhileAVerifyingPassIsUnderWay) {
    Session s = drafting(10);
    for (const Token t : {1, 2}) s.draft(t);
    residual_arrives(s);
    s.begin_verify();
    EXPECT_THROW(s.begin_verify(), InvalidArgument);
    EXPECT_THROW(s.refine(0, Tokens{1, 2, 3}), InvalidArgument);
    EXPECT_EQ(s.verify(Tokens{1, 2, 3}).accepted, 2u);
}

TEST(Session, NoPassBeginsBeforeALayerIsThere) {
    Session s = drafting(4);
    EXPECT_THROW(s.begin_verify(), InvalidArgument);
    EXPECT_FALSE(s.snapshot().verifying);
}

TEST(Session, ARungCorrectsTheDraftsAndCommitsNothing) {
    Session s = drafting(10);
    for (const Token t : {1, 2, 3}) s.draft(t);
    Progress rung = arrived(1);
    rung.reference = 4;
    rung.parts = 5;
    s.observe(rung);
    const std::vector<double> margins{1, 2, 3, 4};
    const Refinement r = s.refine(1, Tokens{1, 7, 3, 4}, margins);
    EXPECT_EQ(r.accepted, 1u);
    EXPECT_EQ(r.rolled_back, 2u);
    EXPECT_EQ(r.drafted, 7);
    EXPECT_EQ(copy(s.drafted()), (Tokens{1, 7}));
    EXPECT_TRUE(s.committed().empty());
    EXPECT_EQ(s.snapshot().checked_part, 1);
    EXPECT_EQ(s.snapshot().margin, 2);
    EXPECT_EQ(s.tally().accepted, 0u);
    EXPECT_EQ(s.tally().refinements, 1u);

    EXPECT_EQ(s.refine(1, Tokens{5, 6, 8}).drafted, 5) << "none was right";
    EXPECT_EQ(s.snapshot().checked_part, 1);
    EXPECT_THROW(s.refine(2, Tokens{5, 6}), InvalidArgument) << "that part has not arrived";
    EXPECT_THROW(s.refine(1, Tokens{5}), InvalidArgument);
    EXPECT_THROW(drafting(10).refine(0, Tokens{5}), InvalidArgument) << "nothing is drafted";
}

TEST(Session, ARungAddsNoTokenBehindTheTextsEnd) {
    Session s = drafting(2, {0});
    for (const Token t : {1, 0}) s.draft(t);
    EXPECT_EQ(s.refine(0, Tokens{1, 0, 5}).drafted, std::nullopt);
    EXPECT_EQ(copy(s.drafted()), (Tokens{1, 0}));
    EXPECT_EQ(s.refine(0, Tokens{1, 6, 5}).drafted, 6) << "the finer cache goes on";
    EXPECT_FALSE(s.snapshot().can_draft) << "two tokens are all";
}

TEST(Session, TheTextEndsWhereThePredicateSaysSo) {
    const auto ends = [](std::span<const Token> tokens) {
        return tokens.size() >= 2 && tokens[tokens.size() - 2] == 7 && tokens.back() == 8;
    };
    Session drafted(100, 10, {}, ends);
    drafted.observe(arrived(0));
    for (const Token t : {7, 8}) drafted.draft(t);
    EXPECT_FALSE(drafted.snapshot().can_draft);
    residual_arrives(drafted);
    EXPECT_EQ(drafted.verify(Tokens{7, 8, 9}).committed, (Tokens{7, 8}));
    EXPECT_TRUE(drafted.done());

    Session predicted(7, 10, {}, ends);
    predicted.observe(arrived(1));
    EXPECT_EQ(predicted.verify(Tokens{8}).committed, Tokens{8}) << "across prefill's token";
    EXPECT_TRUE(predicted.done());
}

}  // namespace
}  // namespace lynx
