#include "stream/peer_messages.hpp"

#include "lynx/manifest.hpp"
#include "manifest_generated.h"
#include "stream/flatbuffer.hpp"

namespace lynx {

std::vector<std::byte> Hello::serialize() const {
    flatbuffers::FlatBufferBuilder b(256);
    const auto* raw = reinterpret_cast<const std::uint8_t*>(address.data());
    b.Finish(wire::CreateHello(b, kManifestVersion, b.CreateString(provider), b.CreateVector(raw, address.size()),
                               epoch, session, resume, received));
    return bytes_of(b);
}

Hello Hello::parse(ConstByteSpan bytes) {
    const auto& h = verified_root<wire::Hello>(bytes, "hello");
    check_version(h.version(), kManifestVersion, "hello");
    const auto* raw = reinterpret_cast<const std::byte*>(h.address()->data());
    return {h.provider()->str(), {raw, raw + h.address()->size()}, h.epoch(), h.session(), h.resume(), h.received()};
}

std::vector<std::byte> Heartbeat::serialize() const {
    flatbuffers::FlatBufferBuilder b(64);
    b.Finish(wire::CreateHeartbeat(b, received));
    return bytes_of(b);
}

Heartbeat Heartbeat::parse(ConstByteSpan bytes) {
    return {verified_root<wire::Heartbeat>(bytes, "heartbeat").received()};
}

std::vector<std::byte> Notice::serialize() const {
    flatbuffers::FlatBufferBuilder b(256);
    b.Finish(wire::CreateNotice(b, request_id, b.CreateString(reason), chunks_posted));
    return bytes_of(b);
}

Notice Notice::parse(ConstByteSpan bytes) {
    const auto& n = verified_root<wire::Notice>(bytes, "notice");
    return {n.request_id(), n.reason() != nullptr ? n.reason()->str() : std::string(), n.chunks_posted()};
}

std::optional<std::uint64_t> offered_request(ConstByteSpan offer) {
    try {
        return verified_root<wire::Manifest>(offer, "manifest").request_id();
    } catch (const ProtocolError&) {
        return std::nullopt;
    }
}

}  // namespace lynx
