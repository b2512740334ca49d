#include "lynx/codec.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/text.hpp"

namespace lynx::bindings {

void bind_codec(nb::module_& m) {
    m.attr("DEFAULT_KEY_ANCHOR_BITS") = kDefaultKeyAnchorBits;
    m.attr("DEFAULT_VALUE_ANCHOR_BITS") = kDefaultValueAnchorBits;
    m.attr("DEFAULT_SINK_TOKENS") = kDefaultSinkTokens;
    m.attr("MAX_SINK_TOKENS") = kMaxSinkTokens;
    m.attr("MAX_RUNGS") = kMaxRungs;
    nb::enum_<DType>(m, "DType", "Element type of a KV cache.")
        .value("BF16", DType::kBF16)
        .value("F16", DType::kF16)
        .value("F32", DType::kF32);
    nb::enum_<Coding>(m, "Coding", "How a tensor is coded.")
        .value("RAW", Coding::kRaw, "The source's bits as they are: one plane, one part.")
        .value("PLANES", Coding::kPlanes, "Rotated, quantized to 8 bits, cut into planes, most significant first.");

    nb::class_<TensorSpec>(m, "TensorSpec", "What has to be known to lay out one K or V tensor of one layer.")
        .def(
            "__init__",
            [](TensorSpec* self, std::uint32_t heads, std::uint32_t tokens, std::uint32_t head_dim, Coding coding,
               DType dtype, std::uint8_t anchor_bits, std::uint16_t sink_tokens, bool exact) {
                new (self) TensorSpec{coding, dtype, heads, tokens, head_dim, anchor_bits, sink_tokens, exact};
            },
            nb::arg("heads"), nb::arg("tokens"), nb::arg("head_dim"), nb::kw_only(),
            nb::arg("coding") = Coding::kPlanes, nb::arg("dtype") = DType::kBF16, nb::arg("anchor_bits") = 4,
            nb::arg("sink_tokens") = 0, nb::arg("exact") = false)
        .def_ro("heads", &TensorSpec::heads)
        .def_ro("tokens", &TensorSpec::tokens)
        .def_ro("head_dim", &TensorSpec::head_dim)
        .def_ro("coding", &TensorSpec::coding)
        .def_ro("dtype", &TensorSpec::dtype)
        .def_ro("anchor_bits", &TensorSpec::anchor_bits)
        .def_ro("sink_tokens", &TensorSpec::sink_tokens, "How many first tokens have all their bits in the anchor.")
        .def_ro("exact", &TensorSpec::exact,
                "Is there a correction that restores the source bit for bit? For bf16 and fp16.")
        .def(
            "__eq__", [](const TensorSpec& a, const TensorSpec& b) { return a == b; }, nb::is_operator(),
            nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__repr__", [](const TensorSpec& s) {
            return text("TensorSpec(heads=", s.heads, ", tokens=", s.tokens, ", head_dim=", s.head_dim,
                        ", coding=", s.coding == Coding::kRaw ? "RAW" : "PLANES", ", dtype=", name_of(s.dtype),
                        ", anchor_bits=", int{s.anchor_bits}, ", sink_tokens=", s.sink_tokens,
                        ", exact=", s.exact ? "True)" : "False)");
        });

    nb::class_<Extent>(m, "Extent", "A run of bytes inside a coded tensor.")
        .def_ro("offset", &Extent::offset)
        .def_ro("bytes", &Extent::bytes)
        .def("__repr__", [](const Extent& e) { return text("Extent(offset=", e.offset, ", bytes=", e.bytes, ")"); });

    nb::class_<PlaneLayout>(
        m, "PlaneLayout",
        "Where scales, zeros and planes of a coded tensor lie. Raises InvalidArgument for a spec out of range.")
        .def(nb::init<const TensorSpec&>(), nb::arg("spec"))
        .def_prop_ro("spec", [](const PlaneLayout& l) { return l.spec(); })
        .def_prop_ro("bytes", &PlaneLayout::bytes)
        .def_prop_ro("planes", &PlaneLayout::planes)
        .def_prop_ro(
            "parts", [](const PlaneLayout& l) { return l.parts(); }, "With the residual in one.")
        .def_prop_ro("scales", &PlaneLayout::scales)
        .def_prop_ro("zeros", &PlaneLayout::zeros)
        .def_prop_ro("sinks", &PlaneLayout::sinks, "The first tokens' bits that the anchor's planes lack.")
        .def_prop_ro("has_exact", &PlaneLayout::has_exact)
        .def_prop_ro("group_vectors", &PlaneLayout::group_vectors, "Vectors in a group of the exact tier.")
        .def_prop_ro("groups", &PlaneLayout::groups)
        .def_prop_ro("exact_index", &PlaneLayout::exact_index, "Where each group of the exact tier ends.")
        .def_prop_ro("exact_payload", &PlaneLayout::exact_payload, "The most that the exact tier's groups can take.")
        .def("plane", &PlaneLayout::plane, nb::arg("index"), "The extent of one plane; 0 is the most significant.")
        .def("part", &PlaneLayout::part, nb::arg("index"), nb::arg("rungs") = 1,
             "0 is the anchor; the residual is in `rungs` parts.")
        .def("planes_through", &PlaneLayout::planes_through, nb::arg("part"), nb::arg("rungs") = 1,
             "How many planes can be decoded once the parts up to this one are there.");

    nb::class_<EncodeStats>(m, "EncodeStats")
        .def_ro("nonfinite_vectors", &EncodeStats::nonfinite_vectors,
                "Head vectors that held a NaN or an infinity; they are coded as zeros.");

    nb::class_<Codec>(m, "Codec", "One instruction set's codec. Stateless; usable from any thread.")
        .def_static("best", &Codec::best, nb::rv_policy::reference,
                    "The fastest this CPU runs, or the one that LYNX_ISA in the environment names.")
        .def_static("by_name", &Codec::by_name, nb::arg("name"), nb::rv_policy::reference,
                    "By the name of an instruction set. Raises InvalidArgument listing those there are.")
        .def_static("available", &Codec::available, "Names of all that run on this CPU, the fastest first.")
        .def_prop_ro("name", &Codec::name)
        .def(
            "encode",
            [](const Codec& codec, nb::handle source, const PlaneLayout& layout, nb::handle out, ThreadPool* executor) {
                const SourceTensor tensor = borrow_source(source);
                const auto [owner, bytes] = borrow_writable_bytes(out);
                const nb::gil_scoped_release release;
                return codec.encode(tensor.view, layout, bytes, executor);
            },
            nb::arg("source"), nb::arg("layout"), nb::arg("out"), nb::kw_only(), nb::arg("executor") = nb::none(),
            nb::sig("def encode(self, source: object, layout: PlaneLayout, out: object, *, "
                    "executor: ThreadPool | None = None) -> EncodeStats"),
            "Codes `source` [heads, tokens, head_dim] into `out`, layout.bytes of uint8. Nothing is copied on the way. "
            "With an executor a large tensor is coded on its threads, to the same bytes.")
        .def(
            "decode",
            [](const Codec& codec, const PlaneLayout& layout, nb::handle source, unsigned planes, nb::handle out,
               ThreadPool* executor) {
                const auto [owner, bytes] = borrow_bytes(source);
                const DestinationTensor tensor = borrow_destination(out);
                const nb::gil_scoped_release release;
                codec.decode(layout, bytes, planes, tensor.view, executor);
            },
            nb::arg("layout"), nb::arg("source"), nb::arg("planes"), nb::arg("out"), nb::kw_only(),
            nb::arg("executor") = nb::none(),
            nb::sig("def decode(self, layout: PlaneLayout, source: object, planes: int, out: object, *, "
                    "executor: ThreadPool | None = None) -> None"),
            "Decodes the first `planes` planes into `out` [heads, tokens, head_dim] of any dtype and strides, with an "
            "executor on its threads; then no two elements of `out` may share memory.")
        .def(
            "encode_exact",
            [](const Codec& codec, nb::handle source, const PlaneLayout& layout, nb::handle coded,
               ThreadPool* executor) {
                const SourceTensor tensor = borrow_source(source);
                const auto [owner, bytes] = borrow_writable_bytes(coded);
                const nb::gil_scoped_release release;
                return codec.encode_exact(tensor.view, layout, bytes, executor);
            },
            nb::arg("source"), nb::arg("layout"), nb::arg("coded"), nb::kw_only(), nb::arg("executor") = nb::none(),
            nb::sig("def encode_exact(self, source: object, layout: PlaneLayout, coded: object, *, "
                    "executor: ThreadPool | None = None) -> int"),
            "Writes the exact tier behind the planes that `encode` has written of `source` into `coded`. Returns how "
            "many bytes of layout.exact_payload it takes: to keep are coded[: layout.exact_payload.offset + that]. To "
            "decode, copy them into the beginning of layout.bytes.")
        .def(
            "decode_exact",
            [](const Codec& codec, const PlaneLayout& layout, nb::handle coded, nb::handle out, ThreadPool* executor) {
                const auto [owner, bytes] = borrow_bytes(coded);
                const DestinationTensor tensor = borrow_destination(out);
                const nb::gil_scoped_release release;
                codec.decode_exact(layout, bytes, tensor.view, executor);
            },
            nb::arg("layout"), nb::arg("coded"), nb::arg("out"), nb::kw_only(), nb::arg("executor") = nb::none(),
            nb::sig("def decode_exact(self, layout: PlaneLayout, coded: object, out: object, *, "
                    "executor: ThreadPool | None = None) -> None"),
            "Restores the source's bits into `out` [heads, tokens, head_dim], of the source's dtype or converted to "
            "`out`'s. Raises CorruptData for bytes that do not hold together; `out` is then overwritten in part. Not "
            "all "
            "damage shows: this is no checksum.");
}

}  // namespace lynx::bindings
