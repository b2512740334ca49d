// Messages of a stranger, read.
#include "lynx/manifest.hpp"

#include <algorithm>
#include <optional>

#include "fuzz/input.hpp"
#include "fuzz/targets.hpp"
#include "lynx/error.hpp"
#include "lynx/shards.hpp"
#include "lynx/slot_layout.hpp"
#include "stream/peer_messages.hpp"

namespace lynx::fuzz {
namespace {

/// A manifest that was accepted can be laid out, cut into writes and sent on as it is.
void check_accepted(const Manifest& manifest) {
    require(Manifest::parse(manifest.serialize()) == manifest, "a manifest does not come back as it was sent");
    std::optional<SlotLayout> layout;
    try {
        layout.emplace(manifest);
    } catch (const InvalidArgument&) {  // more chunks than can be numbered
        return;
    }
    const SlotLayout& slot = *layout;
    for (std::uint32_t t = 0; t < slot.tensors(); ++t) {
        require(slot.coded(t).end() <= slot.bytes(), "a tensor lies outside of its slot");
        for (unsigned p = 0; p < slot.parts(); ++p) {
            const Extent part = slot.part(t, p);
            require(part.offset >= slot.head(t).offset && part.end() <= slot.coded(t).end(),
                    "a part lies outside of its tensor");
            const auto chunks = slot.chunks(t, p);
            if (chunks.count() == 0) continue;
            require(slot.chunk(chunks.begin).extent.offset == part.offset,
                    "the first write is not at the part's begin");
            require(slot.chunk(chunks.end - 1).extent.end() == part.end(), "the last write does not end with the part");
        }
    }
}

void read(unsigned kind, ConstByteSpan bytes) {
    switch (kind) {
        case 0: return check_accepted(Manifest::parse(bytes));
        case 1: (void)Grant::parse(bytes); return;
        case 2: (void)Hello::parse(bytes); return;
        case 3: (void)Notice::parse(bytes); return;
        case 4: (void)Sent::parse(bytes); return;
        case 5: (void)Resend::parse(bytes); return;
        case 6: (void)Heartbeat::parse(bytes); return;
        case 7: (void)Resumption::parse(bytes); return;
        case 8: (void)ShardLayout::parse(ShardLayout::parse(bytes).serialize()); return;
        default: (void)offered_request(bytes);
    }
}

[[nodiscard]] std::vector<std::byte> seed(unsigned kind, const std::vector<std::byte>& message) {
    std::vector<std::byte> bytes(1 + message.size(), static_cast<std::byte>(kind));
    std::copy(message.begin(), message.end(), bytes.begin() + 1);
    return bytes;
}

}  // namespace

void manifest(ConstByteSpan input) {
    Input in(input);
    const unsigned kind = in.between(0, 12);
    // In memory of its own, so that it ends where the sanitizer sees it.
    const std::vector<std::byte> bytes(in.rest().begin(), in.rest().end());
    try {
        read(kind < 10 ? kind : 0, bytes);
    } catch (const ProtocolError&) {  // the one answer to bytes that cannot be read
        return;
    }
}

std::vector<std::vector<std::byte>> manifest_seeds() {
    Manifest manifest{.request_id = 7, .model = "a model", .context_tokens = 33, .tensors = {}};
    for (std::uint32_t layer = 0; layer < 3; ++layer)
        for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue})
            manifest.tensors.push_back({layer, role, {.heads = 2, .tokens = 33, .head_dim = 64, .sink_tokens = 4}});
    Manifest ladder = manifest;
    ladder.rungs = 3, ladder.parts = 4;
    manifest.tensors.back().spec.coding = Coding::kRaw;
    manifest.shard = {1, 2, 0, 1, 3, 4, {{0, 3, 0, 4}}};
    const std::vector<std::byte> address(16, std::byte{1});
    const Grant grant{.request_id = 7, .slot = 1, .regions = {{4096, 9, 1 << 20}}};
    return {seed(0, manifest.serialize()),
            seed(0, ladder.serialize()),
            seed(9, manifest.serialize()),
            seed(1, grant.serialize()),
            seed(2, Hello{"tcp", address}.serialize()),
            seed(3, Notice{7, "the reason", 12}.serialize()),
            seed(4, Sent{7, 2, 1}.serialize()),
            seed(5, Resend{7, {{{1, 3}, {9, 1}}, 1}}.serialize()),
            seed(6, Heartbeat{99}.serialize()),
            seed(7, Resumption{grant, std::vector<std::uint8_t>(20, 1)}.serialize()),
            seed(8, ShardLayout::even(std::vector<LayerShape>(3, {4, 64}), 2, 2).serialize())};
}

}  // namespace lynx::fuzz
