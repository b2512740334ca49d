#include "lynx/peer.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "lynx/error.hpp"

namespace lynx::bindings {

namespace {

constexpr double kDefaultTimeout = 10;

void raise_if_interrupted() {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

Peer connect(const Node& node, const std::string& host, std::uint16_t port, double timeout_s, bool wait_for_listener,
             const std::optional<PresharedKey>& key) {
    const Deadline deadline = deadline_in(timeout_s);
    const nb::gil_scoped_release release;
    return Peer::connect(node, host, port, deadline,
                         {.retry_refused = wait_for_listener, .poll = raise_if_interrupted, .key = key});
}

}  // namespace

void bind_peer(nb::module_& m) {
    nb::class_<Peer>(m, "Peer",
                     "The other node, connected. When its connection ends, every transfer with it fails at once.")
        .def_static("connect", &connect, nb::arg("node"), nb::arg("host"), nb::arg("port"),
                    nb::arg("timeout_s") = kDefaultTimeout, nb::arg("wait_for_listener") = false, nb::kw_only(),
                    nb::arg("key") = nb::none(),
                    "Connects to a Listener; with wait_for_listener also to one that is not there yet. The key is the "
                    "listener's.")
        .def(
            "offer",
            [](Peer& peer, const Manifest& manifest, double timeout_s, std::uint64_t bytes_per_second) {
                const Deadline deadline = deadline_in(timeout_s);
                const nb::gil_scoped_release release;
                return peer.offer(manifest, deadline, {.bytes_per_second = bytes_per_second}, raise_if_interrupted);
            },
            nb::arg("manifest"), nb::arg("timeout_s") = kDefaultTimeout, nb::kw_only(), nb::arg("bytes_per_second") = 0,
            "Sending side: offers a transfer and waits for the grant.")
        .def("send_first_token", &Peer::send_first_token, nb::arg("sender"), nb::arg("token"),
             nb::call_guard<nb::gil_scoped_release>(),
             "Sending side, once, where the manifest has no first token: prefill has sampled it.")
        .def(
            "accept_offer",
            [](Peer& peer, double timeout_s, std::uint64_t bytes_per_second) {
                return interruptible(timeout_s, [&](Deadline d) {
                    return peer.accept_offer(d, {.bytes_per_second = bytes_per_second});
                });
            },
            nb::arg("timeout_s") = kDefaultTimeout, nb::kw_only(), nb::arg("bytes_per_second") = 0,
            "Receiving side: the next transfer, or None if the time is up.")
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
               const std::optional<PresharedKey>& key, bool allow_unauthenticated) {
                new (self) Listener(node, host, port, {.key = key, .allow_unauthenticated = allow_unauthenticated});
            },
            nb::arg("node"), nb::arg("host"), nb::arg("port"), nb::kw_only(), nb::arg("key") = nb::none(),
            nb::arg("allow_unauthenticated") = false,
            "With a key, peers have to prove that they have the same. Without one only on addresses of loopback, but "
            "for "
            "allow_unauthenticated: whoever reaches the port is then a peer.")
        .def_prop_ro("port", &Listener::port)
        .def(
            "accept",
            [](Listener& listener, double timeout_s) {
                return interruptible(timeout_s, [&](Deadline d) { return listener.accept(d); });
            },
            nb::arg("timeout_s") = kDefaultTimeout, "The next peer, or None if the time is up.");
}

}  // namespace lynx::bindings
