#include "lynx/session.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/text.hpp"

namespace lynx::bindings {

namespace {

std::vector<Token> copy(std::span<const Token> tokens) {
    return {tokens.begin(), tokens.end()};
}

}  // namespace

void bind_session(nb::module_& m) {
    nb::enum_<SessionState>(m, "SessionState")
        .value("WAITING", SessionState::kWaiting)
        .value("DRAFTING", SessionState::kDrafting)
        .value("VERIFYING", SessionState::kVerifying)
        .value("DONE", SessionState::kDone)
        .value("ANCHOR_ONLY", SessionState::kAnchorOnly);

    nb::class_<Snapshot>(m, "Snapshot", "What a policy decides on; a value, taken at one moment.")
        .def(
            "__init__",
            [](Snapshot* self, bool anchor_ready, bool residual_ready, double anchor_fraction, double residual_fraction,
               std::uint32_t drafted, std::uint32_t committed, std::uint32_t max_tokens, bool can_draft,
               double elapsed_s) {
                new (self) Snapshot{anchor_ready, residual_ready, anchor_fraction, residual_fraction, drafted,
                                    committed,    max_tokens,     can_draft,       elapsed_s};
            },
            nb::kw_only(), nb::arg("anchor_ready") = false, nb::arg("residual_ready") = false,
            nb::arg("anchor_fraction") = 0.0, nb::arg("residual_fraction") = 0.0, nb::arg("drafted") = 0,
            nb::arg("committed") = 0, nb::arg("max_tokens") = 0, nb::arg("can_draft") = false,
            nb::arg("elapsed_s") = 0.0)
        .def_ro("anchor_ready", &Snapshot::anchor_ready, "Drafting is possible.")
        .def_ro("residual_ready", &Snapshot::residual_ready, "The reference tier is complete: verifying is possible.")
        .def_ro("anchor_fraction", &Snapshot::anchor_fraction)
        .def_ro("residual_fraction", &Snapshot::residual_fraction)
        .def_ro("drafted", &Snapshot::drafted, "Provisional tokens outstanding.")
        .def_ro("committed", &Snapshot::committed, "Verified tokens, without the one that prefill sampled.")
        .def_ro("max_tokens", &Snapshot::max_tokens)
        .def_ro("can_draft", &Snapshot::can_draft)
        .def_ro("elapsed_s", &Snapshot::elapsed_s, "Seconds since the session began.")
        .def("__repr__", [](const Snapshot& s) {
            return text("Snapshot(anchor ", s.anchor_fraction, s.anchor_ready ? " ready" : "", ", residual ",
                        s.residual_fraction, s.residual_ready ? " ready" : "", ", drafted ", s.drafted, ", committed ",
                        s.committed, " of ", s.max_tokens, ", ", s.elapsed_s, " s)");
        });

    nb::class_<Verdict>(m, "Verdict", "What one verifying pass did.")
        .def_ro("accepted", &Verdict::accepted, "Drafts that the finer cache confirms.")
        .def_ro("rolled_back", &Verdict::rolled_back, "Drafts taken back.")
        .def_ro("committed", &Verdict::committed, "The accepted drafts, then the token after them.")
        .def_ro("rows_to_drop", &Verdict::rows_to_drop,
                "K/V rows at the cache's end that belong to drafts taken back.");

    nb::class_<Tally>(m, "Tally")
        .def_ro("drafted", &Tally::drafted)
        .def_ro("accepted", &Tally::accepted)
        .def_ro("rolled_back", &Tally::rolled_back)
        .def_ro("rollbacks", &Tally::rollbacks)
        .def_ro("passes", &Tally::passes);

    nb::class_<Session>(
        m, "Session",
        "One request's token ledger: committed tokens are never taken back, drafted ones may be. For one thread.")
        .def(nb::init<Token, std::uint32_t, std::vector<Token>>(), nb::arg("first_token"), nb::arg("max_tokens"),
             nb::arg("end_tokens") = std::vector<Token>())
        .def("observe", &Session::observe, nb::arg("anchor_fraction"), nb::arg("residual_fraction"),
             nb::arg("anchor_ready"), nb::arg("residual_ready"),
             "Tells what has arrived. Readiness never goes back; fractions are 0 to 1.")
        .def("snapshot", &Session::snapshot, "What a policy may know, now.")
        .def_prop_ro("state", &Session::state)
        .def_prop_ro("done", &Session::done)
        .def_prop_ro("last", &Session::last, "The token whose successor a draft step computes.")
        .def("draft", &Session::draft, nb::arg("token"),
             "Adds a provisional token. Raises InvalidArgument where the snapshot's can_draft is false.")
        .def_prop_ro(
            "pending", [](const Session& s) { return copy(s.pending()); },
            "What a verifying pass runs over: the last committed token, then the drafts.")
        .def(
            "verify", [](Session& s, const std::vector<Token>& predicted) { return s.verify(predicted); },
            nb::arg("predicted"),
            "`predicted[i]` is what the finer cache gives after pending[i]: commits the longest confirmed prefix of "
            "the drafts "
            "and one token more. Raises InvalidArgument before the reference tier is complete.")
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
