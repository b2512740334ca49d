#include "lynx/session.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/text.hpp"

namespace lynx::bindings {

namespace {

std::vector<Token> copy(std::span<const Token> tokens) {
    return {tokens.begin(), tokens.end()};
}

TextEnds to_text_ends(nb::object ends) {
    if (ends.is_none()) return nullptr;
    return [ends = std::move(ends)](std::span<const Token> tokens) { return nb::cast<bool>(ends(copy(tokens))); };
}

/// Calls `visit(name, member, doc)` for each field: the constructor's keywords and the attributes are the same list.
template <class Visit>
void each_progress_field(Visit&& visit) {
    visit("part", &Progress::part, "The finest part that all layers have, with every part before it; -1: none.");
    visit("held", &Progress::held, "The finest part that every layer of the engine's cache has been brought to.");
    visit("reference", &Progress::reference, "The part that completes the reference tier; -1: none is sent.");
    visit("parts", &Progress::parts, "Parts sent in all.");
    visit("layers", &Progress::layers, "Of the model.");
    visit("layers_ready", &Progress::layers_ready, "From layer 0 on, those that have the reference tier.");
    visit("anchor_fraction", &Progress::anchor_fraction, "Of the anchor's bytes that have arrived, 0-1.");
    visit("residual_fraction", &Progress::residual_fraction, "Of all bytes behind the anchor, 0-1.");
    visit("bytes_left", &Progress::bytes_left, "Bytes that are missing until the reference tier is complete.");
    visit("part_bytes_left", &Progress::part_bytes_left, "Bytes that are missing until the part after `part` is.");
    visit("bytes_per_second", &Progress::bytes_per_second, "At which they have arrived; 0: unknown.");
    visit("draft_s", &Progress::draft_s, "Mean seconds of a draft step; 0: unknown.");
    visit("pass_s", &Progress::pass_s, "Mean computing seconds of a pass over drafts; 0: unknown.");
    visit("elapsed_s", &Progress::elapsed_s, "Seconds since the request began.");
}

template <class Visit>
void each_snapshot_field(Visit&& visit) {
    each_progress_field(visit);
    visit("anchor_ready", &Snapshot::anchor_ready, "Drafting is possible.");
    visit("reference_ready", &Snapshot::reference_ready, "The reference tier is complete.");
    visit("verifying", &Snapshot::verifying, "A verifying pass is under way and waits for its next layer.");
    visit("drafted", &Snapshot::drafted, "Provisional tokens outstanding.");
    visit("checked_part", &Snapshot::checked_part, "The part on which the oldest of them was made or last checked.");
    visit("committed", &Snapshot::committed, "Verified tokens, without the one that prefill sampled.");
    visit("max_tokens", &Snapshot::max_tokens, "Wanted in all.");
    visit("can_draft", &Snapshot::can_draft, "One more token can be drafted: the anchor is in, and the text goes on.");
    visit("margin", &Snapshot::margin, "Of the last draft over its runner-up, in logits.");
}

/// Sets the fields that the keywords name.
template <class T>
void set_fields(T& value, const nb::kwargs& keywords, auto&& each_field) {
    std::size_t known = 0;
    each_field([&](const char* name, auto member, const char*) {
        if (!keywords.contains(name)) return;
        value.*member = nb::cast<std::remove_reference_t<decltype(value.*member)>>(keywords[name]);
        known += 1;
    });
    if (known != keywords.size()) throw nb::type_error("a keyword is not a field; see the class's attributes");
}

constexpr const char* kProgressInit =
    "def __init__(self, *, part: int = -1, held: int = -1, reference: int = -1, parts: int = 1, layers: int = 0, "
    "layers_ready: int = 0, anchor_fraction: float = 0, residual_fraction: float = 0, bytes_left: float = 0, "
    "part_bytes_left: float = 0, bytes_per_second: float = 0, draft_s: float = 0, pass_s: float = 0, "
    "elapsed_s: float = 0) -> None";
constexpr const char* kSnapshotInit =
    "def __init__(self, *, part: int = -1, held: int = -1, reference: int = -1, parts: int = 1, layers: int = 0, "
    "layers_ready: int = 0, anchor_fraction: float = 0, residual_fraction: float = 0, bytes_left: float = 0, "
    "part_bytes_left: float = 0, bytes_per_second: float = 0, draft_s: float = 0, pass_s: float = 0, "
    "elapsed_s: float = 0, anchor_ready: bool = False, reference_ready: bool = False, verifying: bool = False, "
    "drafted: int = 0, checked_part: int = -1, committed: int = 0, max_tokens: int = 0, can_draft: bool = False, "
    "margin: float = ...) -> None";

template <class Class>
std::string describe(const Class& value, const char* name, auto&& each_field) {
    std::string told = std::string(name) + "(";
    each_field([&](const char* field, auto member, const char*) {
        if (value.*member == Class{}.*member) return;  // what has its default says nothing
        if (told.back() != '(') told += ", ";
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value.*member)>, bool>)
            told += text(field, "=", value.*member ? "True" : "False");
        else
            told += text(field, "=", value.*member);
    });
    return told + ")";
}

}  // namespace

void bind_session(nb::module_& m) {
    nb::enum_<SessionState>(m, "SessionState")
        .value("WAITING", SessionState::kWaiting)
        .value("DRAFTING", SessionState::kDrafting)
        .value("VERIFYING", SessionState::kVerifying)
        .value("DONE", SessionState::kDone)
        .value("ANCHOR_ONLY", SessionState::kAnchorOnly);

    const auto progress_fields = [](auto&& visit) { each_progress_field(visit); };
    const auto snapshot_fields = [](auto&& visit) { each_snapshot_field(visit); };

    nb::class_<Progress> progress(m, "Progress", "What the decode loop knows of the transfer and of its own steps.");
    progress.def(
        "__init__",
        [progress_fields](Progress* self, const nb::kwargs& keywords) {
            new (self) Progress;
            set_fields(*self, keywords, progress_fields);
        },
        nb::sig(kProgressInit));
    each_progress_field([&](const char* name, auto member, const char* doc) { progress.def_ro(name, member, doc); });
    progress.def("__repr__", [progress_fields](const Progress& p) { return describe(p, "Progress", progress_fields); });

    nb::class_<Snapshot> snapshot(m, "Snapshot", "What a policy decides on; a value, taken at one moment.");
    snapshot.def(
        "__init__",
        [snapshot_fields](Snapshot* self, const nb::kwargs& keywords) {
            new (self) Snapshot;
            set_fields(*self, keywords, snapshot_fields);
        },
        nb::sig(kSnapshotInit));
    each_snapshot_field([&](const char* name, auto member, const char* doc) { snapshot.def_ro(name, member, doc); });
    snapshot.def("__repr__", [snapshot_fields](const Snapshot& s) { return describe(s, "Snapshot", snapshot_fields); });

    nb::class_<Verdict>(m, "Verdict", "What one verifying pass did.")
        .def_ro("accepted", &Verdict::accepted, "Drafts that the finer cache confirms.")
        .def_ro("rolled_back", &Verdict::rolled_back, "Drafts taken back.")
        .def_ro("committed", &Verdict::committed,
                "The accepted drafts, then the token after them if it was not among them.");

    nb::class_<Refinement>(m, "Refinement",
                           "What one pass at a rung below the reference tier did. All of it is provisional.")
        .def_ro("accepted", &Refinement::accepted, "Drafts that the rung's cache confirms.")
        .def_ro("rolled_back", &Refinement::rolled_back, "Drafts taken back.")
        .def_ro("drafted", &Refinement::drafted,
                "The rung's own token behind the accepted ones; None where the text ends.");

    nb::class_<Tally>(m, "Tally")
        .def_ro("drafted", &Tally::drafted)
        .def_ro("accepted", &Tally::accepted)
        .def_ro("rolled_back", &Tally::rolled_back)
        .def_ro("rollbacks", &Tally::rollbacks)
        .def_ro("passes", &Tally::passes)
        .def_ro("refinements", &Tally::refinements);

    nb::class_<Session>(
        m, "Session",
        "One request's token ledger: committed tokens are never taken back, drafted ones may be. For one thread.")
        .def(
            "__init__",
            [](Session* self, Token first_token, std::uint32_t max_tokens, std::vector<Token> end_tokens,
               nb::object ends) {
                new (self) Session(first_token, max_tokens, std::move(end_tokens), to_text_ends(std::move(ends)));
            },
            nb::arg("first_token"), nb::arg("max_tokens"), nb::arg("end_tokens") = std::vector<Token>(),
            nb::arg("ends") = nb::none(),
            nb::sig("def __init__(self, first_token: int, max_tokens: int, end_tokens: collections.abc.Sequence[int] = "
                    "..., "
                    "ends: collections.abc.Callable[[list[int]], bool] | None = None) -> None"),
            "The text stops behind one of `end_tokens`, and where `ends` says so of the tokens so far, the first one "
            "included.")
        .def("observe", &Session::observe, nb::arg("progress"),
             "Tells what has arrived. Readiness never goes back; fractions are 0 to 1.")
        .def("snapshot", &Session::snapshot, "What a policy may know, now.")
        .def_prop_ro("state", &Session::state)
        .def_prop_ro("done", &Session::done)
        .def_prop_ro("last", &Session::last, "The token whose successor a draft step computes.")
        .def("draft", &Session::draft, nb::arg("token"), nb::arg("margin") = std::numeric_limits<double>::infinity(),
             "Adds a provisional token. Raises InvalidArgument where the snapshot's can_draft is false.")
        .def_prop_ro(
            "pending", [](const Session& s) { return copy(s.pending()); },
            "What a pass runs over: the last committed token, then the drafts.")
        .def("begin_verify", &Session::begin_verify,
             "A verifying pass begins: until `verify` the snapshot says so. Raises InvalidArgument if no layer has the "
             "reference tier.")
        .def(
            "verify", [](Session& s, const std::vector<Token>& predicted) { return s.verify(predicted); },
            nb::arg("predicted"),
            "`predicted[i]` is what the finer cache gives after pending[i]: commits the longest confirmed prefix of "
            "the drafts and one token more. May be shorter than `pending`: drafts made while the pass ran stay if it "
            "confirms the first of them. Raises InvalidArgument before the reference tier is complete.")
        .def(
            "refine",
            [](Session& s, std::int32_t part, const std::vector<Token>& predicted, const std::vector<double>& margins) {
                return s.refine(part, predicted, margins);
            },
            nb::arg("part"), nb::arg("predicted"), nb::arg("margins") = std::vector<double>(),
            "The same for a pass on `part`, below the reference tier: nothing is committed, but the drafts are now "
            "what that part gives. Raises InvalidArgument without drafts, or if `part` is not complete.")
        .def("end_anchor_only", &Session::end_anchor_only,
             "Ends a request whose reference tier will not come. Its drafts stay provisional.")
        .def_prop_ro(
            "committed", [](const Session& s) { return copy(s.committed()); },
            "Verified tokens, in order, without the one that prefill sampled.")
        .def_prop_ro(
            "drafted", [](const Session& s) { return copy(s.drafted()); }, "The provisional ones behind them.")
        .def_prop_ro("tally", [](const Session& s) { return s.tally(); });
}

}  // namespace lynx::bindings
