#include "lynx/manifest.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/text.hpp"
#include "lynx/slot_layout.hpp"

namespace lynx::bindings {

void bind_manifest(nb::module_& m) {
    m.attr("MANIFEST_VERSION") = kManifestVersion;
    nb::enum_<TensorRole>(m, "TensorRole").value("KEY", TensorRole::kKey).value("VALUE", TensorRole::kValue);

    nb::class_<ManifestTensor>(m, "ManifestTensor")
        .def(
            "__init__",
            [](ManifestTensor* self, std::uint32_t layer, TensorRole role, const TensorSpec& spec,
               std::uint32_t first_token,
               std::uint32_t first_head) { new (self) ManifestTensor{layer, role, spec, first_token, first_head}; },
            nb::arg("layer"), nb::arg("role"), nb::arg("spec"), nb::kw_only(), nb::arg("first_token") = 0,
            nb::arg("first_head") = 0)
        .def_ro("first_token", &ManifestTensor::first_token, "Where the piece begins in the layer's tensor.")
        .def_ro("first_head", &ManifestTensor::first_head)
        .def_ro("layer", &ManifestTensor::layer)
        .def_ro("role", &ManifestTensor::role)
        .def_ro("spec", &ManifestTensor::spec);

    nb::class_<Shard>(m, "Shard", "Consecutive layers, and of each the same consecutive heads.")
        .def(
            "__init__",
            [](Shard* self, std::uint32_t first_layer, std::uint32_t layers, std::uint32_t first_head,
               std::uint32_t heads) { new (self) Shard{first_layer, layers, first_head, heads}; },
            nb::arg("first_layer"), nb::arg("layers"), nb::arg("first_head"), nb::arg("heads"))
        .def_ro("first_layer", &Shard::first_layer)
        .def_ro("layers", &Shard::layers)
        .def_ro("first_head", &Shard::first_head)
        .def_ro("heads", &Shard::heads);

    nb::class_<ManifestShard>(m, "ManifestShard", "Which transfer this is of a request that several ranks share.")
        .def_ro("sender", &ManifestShard::sender)
        .def_ro("senders", &ManifestShard::senders)
        .def_ro("receiver", &ManifestShard::receiver)
        .def_ro("receivers", &ManifestShard::receivers)
        .def_ro("total_layers", &ManifestShard::total_layers)
        .def_ro("total_heads", &ManifestShard::total_heads)
        .def_ro("owned", &ManifestShard::owned, "By the sender.");

    nb::class_<Manifest>(m, "Manifest", "What is about to be sent: the first message of a transfer.")
        .def(
            "__init__",
            [](Manifest* self, std::uint64_t request_id, std::vector<ManifestTensor> tensors, std::string model,
               std::uint32_t context_tokens, std::int32_t first_token, std::uint8_t parts, std::uint32_t chunk_bytes,
               bool checksums, std::uint8_t rungs) {
                Manifest manifest{request_id,  std::move(model), context_tokens,     first_token, parts,
                                  chunk_bytes, checksums,        std::move(tensors), {},          rungs};
                manifest.validate();
                new (self) Manifest(std::move(manifest));
            },
            nb::arg("request_id"), nb::arg("tensors"), nb::kw_only(), nb::arg("model") = "",
            nb::arg("context_tokens") = 0, nb::arg("first_token") = -1, nb::arg("parts") = 2,
            nb::arg("chunk_bytes") = 0, nb::arg("checksums") = true, nb::arg("rungs") = 1)
        .def_ro("request_id", &Manifest::request_id)
        .def_ro("tensors", &Manifest::tensors)
        .def_ro("model", &Manifest::model)
        .def_ro("context_tokens", &Manifest::context_tokens)
        .def_ro("first_token", &Manifest::first_token, "What prefill sampled from its exact cache; -1 if it follows.")
        .def_ro("parts", &Manifest::parts, "1: anchors alone; 1 + rungs: with residuals; 2 + rungs: with exact tiers.")
        .def_ro("rungs", &Manifest::rungs, "In how many parts the residual travels; more than 1: the plane ladder.")
        .def_prop_ro("residual_part", &Manifest::residual_part, "With it all 8 planes are there, if it is sent.")
        .def_prop_ro("exact_part", &Manifest::exact_part, "That of the exact tier, if it is sent.")
        .def_ro("chunk_bytes", &Manifest::chunk_bytes,
                "Coded bytes of one write, at most; 0: what suits the bandwidth measured to the peer.")
        .def_ro("checksums", &Manifest::checksums)
        .def_ro("shard", &Manifest::shard)
        .def_prop_ro(
            "slot_bytes", [](const Manifest& manifest) { return SlotLayout(manifest).bytes(); },
            "The room it takes in an arena.")
        .def("__repr__",
             [](const Manifest& manifest) {
                 return text("Manifest(request ", manifest.request_id, ", model '", manifest.model, "', ",
                             manifest.tensors.size(), " tensors, ", manifest.context_tokens,
                             " tokens, parts=", int{manifest.parts}, ", rungs=", int{manifest.rungs}, ")");
             })
        .def("serialize", [](const Manifest& manifest) { return to_bytes(manifest.serialize()); })
        .def_static(
            "parse", [](const nb::bytes& bytes) { return Manifest::parse(span_of(bytes)); }, nb::arg("bytes"))
        .def(
            "__eq__", [](const Manifest& a, const Manifest& b) { return a == b; }, nb::is_operator(),
            nb::sig("def __eq__(self, other: object, /) -> bool"));

    nb::class_<Grant>(m, "Grant", "The receiver's answer to a manifest: where to write, and how fast at most.")
        .def_ro("request_id", &Grant::request_id)
        .def_ro("slot", &Grant::slot)
        .def_ro("bytes_per_second", &Grant::bytes_per_second)
        .def("serialize", [](const Grant& grant) { return to_bytes(grant.serialize()); })
        .def_static("parse", [](const nb::bytes& bytes) { return Grant::parse(span_of(bytes)); }, nb::arg("bytes"));
}

}  // namespace lynx::bindings
