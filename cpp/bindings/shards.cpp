#include "lynx/shards.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/text.hpp"
#include "receiving.hpp"

namespace lynx::bindings {

namespace {

void bind_layout(nb::module_& m) {
    nb::class_<LayerShape>(m, "LayerShape", "What K and V of one whole layer are.")
        .def(
            "__init__",
            [](LayerShape* self, std::uint32_t heads, std::uint32_t head_dim, DType dtype, bool value) {
                new (self) LayerShape{heads, head_dim, dtype, value};
            },
            nb::arg("heads"), nb::arg("head_dim"), nb::kw_only(), nb::arg("dtype") = DType::kBF16,
            nb::arg("value") = true, "`value` is False where a layer has one tensor alone, as with MLA: its K.")
        .def_ro("heads", &LayerShape::heads)
        .def_ro("head_dim", &LayerShape::head_dim)
        .def_ro("dtype", &LayerShape::dtype)
        .def_ro("value", &LayerShape::value);

    nb::class_<ShardLayout>(m, "ShardLayout", "What each of the ranks on one side owns of a cache.")
        .def(
            "__init__",
            [](ShardLayout* self, std::vector<LayerShape> layers, std::vector<std::vector<Shard>> ranks) {
                ShardLayout layout{std::move(layers), std::move(ranks)};
                layout.validate();
                new (self) ShardLayout(std::move(layout));
            },
            nb::arg("layers"), nb::arg("ranks"),
            "By rank, in layer order. Of a layer a rank owns one run of heads or nothing, and two ranks the same run "
            "or nothing in common.")
        .def_static("even", &ShardLayout::even, nb::arg("layers"), nb::arg("tensor"), nb::arg("pipeline") = 1,
                    "`pipeline` stages of `tensor` ranks; where a layer has fewer heads, several ranks own each.")
        .def_ro("layers", &ShardLayout::layers)
        .def_ro("ranks", &ShardLayout::ranks)
        .def("serialize", [](const ShardLayout& layout) { return to_bytes(layout.serialize()); })
        .def_static(
            "parse", [](const nb::bytes& bytes) { return ShardLayout::parse(span_of(bytes)); }, nb::arg("bytes"));
}

void bind_plan(nb::module_& m) {
    nb::class_<ShardPiece>(m, "ShardPiece", "A run of heads of one layer.")
        .def_ro("layer", &ShardPiece::layer)
        .def_ro("first_head", &ShardPiece::first_head)
        .def_ro("heads", &ShardPiece::heads)
        .def("__repr__", [](const ShardPiece& p) {
            return text("ShardPiece(layer=", p.layer, ", first_head=", p.first_head, ", heads=", p.heads, ")");
        });

    nb::class_<ShardPlan>(m, "ShardPlan", "Who sends what to whom: the same at both ends, from the two layouts alone.")
        .def(nb::init<ShardLayout, ShardLayout>(), nb::arg("senders"), nb::arg("receivers"),
             "Raises InvalidArgument that names the layer and the heads that nobody owns or that do not match.")
        .def_prop_ro("senders", &ShardPlan::senders)
        .def_prop_ro("receivers", &ShardPlan::receivers)
        .def(
            "pieces",
            [](const ShardPlan& plan, std::uint32_t sender, std::uint32_t receiver) {
                const auto pieces = plan.pieces(sender, receiver);
                return std::vector<ShardPiece>(pieces.begin(), pieces.end());
            },
            nb::arg("sender"), nb::arg("receiver"))
        .def("senders_to", &ShardPlan::senders_to, nb::arg("receiver"))
        .def("receivers_from", &ShardPlan::receivers_from, nb::arg("sender"))
        .def("manifest", &ShardPlan::manifest, nb::arg("whole"), nb::arg("sender"), nb::arg("receiver"),
             "What `sender` offers `receiver`, cut from the manifest of the whole cache.")
        .def("check", &ShardPlan::check, nb::arg("manifest"), nb::arg("receiver"),
             "Raises ProtocolError that names what this plan does not foresee, or misses.");

    m.def(
        "put_shard",
        [](PlaneSender& sender, std::uint32_t layer, TensorRole role, nb::handle source, std::uint32_t first_token) {
            const SourceTensor tensor = borrow_source(source);
            const nb::gil_scoped_release release;
            put_shard(sender, layer, role, tensor.view, first_token);
        },
        nb::arg("sender"), nb::arg("layer"), nb::arg("role"), nb::arg("source"), nb::kw_only(),
        nb::arg("first_token") = 0,
        nb::sig(
            "def put_shard(sender: PlaneSender, layer: int, role: TensorRole, source: object, *, first_token: int = "
            "0) -> None"),
        "Puts what `sender` carries of `source`, the tensor of the sending rank's own heads.");
}

}  // namespace

void bind_shards(nb::module_& m) {
    bind_layout(m);
    bind_plan(m);

    nb::class_<ShardedReceiver> receiver(
        m, "ShardedReceiver",
        "All transfers that make up one receiving rank's part of a request, as if they were one. It fails as a whole.");
    receiver
        .def(
            "__init__",
            [](nb::pointer_and_handle<ShardedReceiver> self, const ShardPlan& plan, std::uint32_t rank,
               const nb::sequence& sources) {
                std::vector<ShardSource> all;
                for (const nb::handle source : sources) {
                    const nb::object transfer = source[0];
                    const nb::object peer = source[1];
                    all.push_back(
                        {nb::cast<PlaneReceiver*>(transfer), peer.is_none() ? nullptr : nb::cast<Peer*>(peer)});
                    nb::keep_alive_obj(self.h, transfer);
                    if (!peer.is_none()) nb::keep_alive_obj(self.h, peer);
                }
                new (self.p) ShardedReceiver(plan, rank, std::move(all));
            },
            nb::arg("plan"), nb::arg("receiver"), nb::arg("sources"),
            nb::sig("def __init__(self, plan: ShardPlan, receiver: int, sources: "
                    "collections.abc.Sequence[tuple[PlaneReceiver, Peer | None]]) -> None"),
            "`sources` are the transfers, each with the peer that cancels it. Raises ProtocolError if these are not "
            "those that the plan foresees.")
        .def("finish", &ShardedReceiver::finish, nb::call_guard<nb::gil_scoped_release>(),
             "Confirms every transfer that has a peer.")
        .def(
            "cancel",
            [](ShardedReceiver& r, const std::string& reason, double timeout_s) {
                const Deadline deadline = deadline_in(timeout_s);
                const nb::gil_scoped_release release;
                return r.cancel(reason, deadline);
            },
            nb::arg("reason"), nb::arg("timeout_s") = 2.0,
            "Cancels every transfer. True once no late write can land in any slot.")
        .def(
            "decode",
            [](const ShardedReceiver& r, std::uint32_t layer, TensorRole role, unsigned part, nb::handle out) {
                const DestinationTensor tensor = borrow_destination(out);
                const nb::gil_scoped_release release;
                r.decode(layer, role, part, tensor.view);
            },
            nb::arg("layer"), nb::arg("role"), nb::arg("part"), nb::arg("out"),
            nb::sig("def decode(self, layer: int, role: TensorRole, part: int, out: object) -> None"),
            "Decodes a tensor from all planes through `part` into `out` [heads, tokens, head_dim], in place.");
    bind_receiving(receiver);
}

}  // namespace lynx::bindings
