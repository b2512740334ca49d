#include "lynx/peer.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "core/text.hpp"
#include "lynx/error.hpp"
#include "lynx/shards.hpp"

namespace lynx::bindings {

namespace {

constexpr double kDefaultTimeout = 10;
constexpr double kLongestTime = 1e6;

void raise_if_interrupted() {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

Peer connect(const Node& node, const std::string& host, std::uint16_t port, double timeout_s, bool wait_for_listener,
             const std::optional<PresharedKey>& key, const PeerOptions& options) {
    const Deadline deadline = deadline_in(timeout_s);
    const nb::gil_scoped_release release;
    return Peer::connect(node, host, port, deadline,
                         {.retry_refused = wait_for_listener, .poll = raise_if_interrupted, .key = key}, options);
}

double seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

Clock::duration duration(double seconds) {
    if (!(seconds >= 0 && seconds <= kLongestTime))
        throw InvalidArgument(text("a time of ", seconds, " s was given; it has to be from 0 to ", kLongestTime));
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void bind_options(nb::module_& m) {
    nb::class_<PeerLimits>(m, "PeerLimits", "What one peer may take of this node.")
        .def(
            "__init__",
            [](PeerLimits* self, std::uint32_t max_requests, std::uint64_t max_bytes, std::size_t max_queued,
               std::size_t max_queued_bytes) {
                new (self) PeerLimits{max_requests, max_bytes, max_queued, max_queued_bytes};
            },
            nb::kw_only(), nb::arg("max_requests") = PeerLimits{}.max_requests, nb::arg("max_bytes") = 0,
            nb::arg("max_queued") = PeerLimits{}.max_queued,
            nb::arg("max_queued_bytes") = PeerLimits{}.max_queued_bytes)
        .def_ro("max_requests", &PeerLimits::max_requests, "Its transfers to this node that are under way at once.")
        .def_ro("max_bytes", &PeerLimits::max_bytes, "Of slots that they have at once; 0: the whole arena.")
        .def_ro("max_queued", &PeerLimits::max_queued, "Offers, and messages, that nobody has taken yet.")
        .def_ro("max_queued_bytes", &PeerLimits::max_queued_bytes);

    nb::class_<PeerOptions>(m, "PeerOptions", "How a peer is watched, what it may take, and whether it may come back.")
        .def(
            "__init__",
            [](PeerOptions* self, double heartbeat_interval_s, double lost_after_s, double reconnect_for_s,
               const PeerLimits& limits) {
                new (self) PeerOptions{duration(heartbeat_interval_s), duration(lost_after_s),
                                       duration(reconnect_for_s), limits};
            },
            nb::kw_only(), nb::arg("heartbeat_interval_s") = seconds(PeerOptions{}.heartbeat_interval),
            nb::arg("lost_after_s") = seconds(PeerOptions{}.lost_after), nb::arg("reconnect_for_s") = 0.0,
            nb::arg("limits") = PeerLimits{})
        .def_prop_ro(
            "heartbeat_interval_s", [](const PeerOptions& o) { return seconds(o.heartbeat_interval); },
            "Something is sent at least this often.")
        .def_prop_ro(
            "lost_after_s", [](const PeerOptions& o) { return seconds(o.lost_after); },
            "A peer that is silent for so long is lost.")
        .def_prop_ro(
            "reconnect_for_s", [](const PeerOptions& o) { return seconds(o.reconnect_for); },
            "A connection that breaks is taken up anew within this time, if both sides give it; 0: never.")
        .def_ro("limits", &PeerOptions::limits);
}

}  // namespace

void bind_peer(nb::module_& m) {
    bind_options(m);
    nb::class_<Peer>(m, "Peer",
                     "The other node, connected. When its connection ends, every transfer with it fails at once.")
        .def_static("connect", &connect, nb::arg("node"), nb::arg("host"), nb::arg("port"),
                    nb::arg("timeout_s") = kDefaultTimeout, nb::arg("wait_for_listener") = false, nb::kw_only(),
                    nb::arg("key") = nb::none(), nb::arg("options") = PeerOptions{},
                    "Connects to a Listener; with wait_for_listener also to one that is not there yet. The key is the "
                    "listener's.")
        .def(
            "offer",
            [](Peer& peer, const Manifest& manifest, double timeout_s, std::uint64_t bytes_per_second,
               const Priority& priority) {
                const Deadline deadline = deadline_in(timeout_s);
                const SenderOptions options{.bytes_per_second = bytes_per_second, .priority = priority};
                const nb::gil_scoped_release release;
                return peer.offer(manifest, deadline, options, raise_if_interrupted);
            },
            nb::arg("manifest"), nb::arg("timeout_s") = kDefaultTimeout, nb::kw_only(), nb::arg("bytes_per_second") = 0,
            nb::arg("priority") = Priority{},
            "Sending side: offers a transfer and waits for the grant. Its priority may be changed later.")
        .def("send_first_token", &Peer::send_first_token, nb::arg("sender"), nb::arg("token"),
             nb::call_guard<nb::gil_scoped_release>(),
             "Sending side, once, where the manifest has no first token: prefill has sampled it.")
        .def(
            "accept_offer",
            [](Peer& peer, double timeout_s, std::uint64_t bytes_per_second, const ShardPlan* plan,
               std::uint32_t shard) {
                return interruptible(timeout_s, [&](Deadline d) {
                    return peer.accept_offer(d, {.bytes_per_second = bytes_per_second, .plan = plan, .shard = shard});
                });
            },
            nb::arg("timeout_s") = kDefaultTimeout, nb::kw_only(), nb::arg("bytes_per_second") = 0,
            nb::arg("plan").none() = nb::none(), nb::arg("shard") = 0,
            "Receiving side: the next transfer, or None if the time is up. What `plan` does not foresee for receiving "
            "rank `shard` is refused.")
        .def(
            "finish",
            [](Peer& peer, PlaneSender& sender, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return peer.finish(sender, d); });
            },
            nb::arg("sender"), nb::arg("timeout_s") = kDefaultTimeout,
            "Sender: waits until all is written and the receiver has confirmed. False if the time is up.")
        .def("finish", nb::overload_cast<PlaneReceiver&>(&Peer::finish), nb::arg("receiver"),
             nb::call_guard<nb::gil_scoped_release>(), "Receiver: confirms that all that was wanted has been read.")
        .def(
            "cancel",
            [](Peer& peer, PlaneSender& sender, const std::string& reason, double timeout_s) {
                const nb::gil_scoped_release release;
                return peer.cancel(sender, reason, deadline_in(timeout_s));
            },
            nb::arg("sender"), nb::arg("reason"), nb::arg("timeout_s") = 2.0,
            "Ends a transfer and tells the other side why. True once no late write can land any more.")
        .def(
            "cancel",
            [](Peer& peer, PlaneReceiver& receiver, const std::string& reason, double timeout_s) {
                const nb::gil_scoped_release release;
                return peer.cancel(receiver, reason, deadline_in(timeout_s));
            },
            nb::arg("receiver"), nb::arg("reason"), nb::arg("timeout_s") = 2.0,
            "The same from the receiving side. If False, the slot stays taken as long as the node lives.")
        .def(
            "send_message",
            [](Peer& peer, const nb::bytes& message) {
                const ConstByteSpan bytes = span_of(message);
                const nb::gil_scoped_release release;
                peer.send_message(bytes);
            },
            nb::arg("message"), "The embedder's own messages, up to 1 MiB each.")
        .def(
            "receive_message",
            [](Peer& peer, double timeout_s) -> std::optional<nb::bytes> {
                const auto message = interruptible(timeout_s, [&](Deadline d) { return peer.receive_message(d); });
                if (!message) return std::nullopt;
                return to_bytes(*message);
            },
            nb::arg("timeout_s") = kDefaultTimeout)
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Peer"))
        .def(
            "__exit__", [](Peer& peer, const nb::args&) { peer.close(); },
            nb::sig("def __exit__(self, *args: object) -> None"), "Closes the connection.")
        .def("close", &Peer::close, nb::call_guard<nb::gil_scoped_release>(),
             "Ends the connection: transfers that are not finished fail on both sides.")
        .def_prop_ro("name", &Peer::name, "address:port of the other end.")
        .def_prop_ro("lost", &Peer::lost, "Has the connection ended?");

    nb::class_<Listener>(m, "Listener", "Where peers connect to. Port 0 takes a free one.")
        .def(
            "__init__",
            [](Listener* self, const Node& node, const std::string& host, std::uint16_t port,
               const std::optional<PresharedKey>& key, bool allow_unauthenticated, const PeerOptions& options) {
                new (self)
                    Listener(node, host, port, {.key = key, .allow_unauthenticated = allow_unauthenticated}, options);
            },
            nb::arg("node"), nb::arg("host"), nb::arg("port"), nb::kw_only(), nb::arg("key") = nb::none(),
            nb::arg("allow_unauthenticated") = false, nb::arg("options") = PeerOptions{},
            "With a key, peers have to prove that they have the same. Without one only on addresses of loopback, but "
            "for allow_unauthenticated: whoever reaches the port is then a peer.")
        .def_prop_ro("port", &Listener::port)
        .def(
            "accept",
            [](Listener& listener, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return listener.accept(d); });
            },
            nb::arg("timeout_s") = kDefaultTimeout, "The next peer, or None if the time is up.");
}

}  // namespace lynx::bindings
