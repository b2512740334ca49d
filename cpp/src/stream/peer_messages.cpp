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

std::vector<std::byte> Sent::serialize() const {
    flatbuffers::FlatBufferBuilder b(64);
    b.Finish(wire::CreateSent(b, request_id, parts, round));
    return bytes_of(b);
}

Sent Sent::parse(ConstByteSpan bytes) {
    const auto& s = verified_root<wire::Sent>(bytes, "notice of what was sent");
    return {s.request_id(), s.parts(), s.round()};
}

std::vector<std::byte> Resend::serialize() const {
    flatbuffers::FlatBufferBuilder b(256);
    std::vector<wire::Run> out;
    out.reserve(missing.runs.size());
    for (const ChunkRun& run : missing.runs) out.emplace_back(run.first, run.count);
    b.Finish(wire::CreateResend(b, request_id, b.CreateVectorOfStructs(out), missing.round));
    return bytes_of(b);
}

Resend Resend::parse(ConstByteSpan bytes) {
    const auto& r = verified_root<wire::Resend>(bytes, "request to send again");
    Resend out{r.request_id(), {{}, r.round()}};
    for (const wire::Run* run : *r.runs()) out.missing.runs.push_back({run->first(), run->count()});
    return out;
}

std::vector<std::byte> FirstToken::serialize() const {
    flatbuffers::FlatBufferBuilder b(64);
    b.Finish(wire::CreateFirstToken(b, request_id, token));
    return bytes_of(b);
}

FirstToken FirstToken::parse(ConstByteSpan bytes) {
    const auto& f = verified_root<wire::FirstToken>(bytes, "first token");
    return {f.request_id(), f.token()};
}

std::vector<std::byte> Resumption::serialize() const {
    flatbuffers::FlatBufferBuilder b(1024);
    std::vector<std::uint8_t> bits((arrived.size() + 7) / 8);
    for (std::size_t n = 0; n < arrived.size(); ++n)
        if (arrived[n] != 0) bits[n / 8] |= static_cast<std::uint8_t>(1U << (n % 8));
    const std::vector<std::byte> inner = grant.serialize();
    const auto* raw = reinterpret_cast<const std::uint8_t*>(inner.data());
    b.Finish(wire::CreateResumption(b, b.CreateVector(raw, inner.size()), b.CreateVector(bits)));
    return bytes_of(b);
}

Resumption Resumption::parse(ConstByteSpan bytes) {
    const auto& r = verified_root<wire::Resumption>(bytes, "resumption");
    const auto* raw = reinterpret_cast<const std::byte*>(r.grant()->data());
    const std::vector<std::byte> grant(raw, raw + r.grant()->size());  // inside the message it lies at any alignment
    Resumption out{Grant::parse(grant), {}};
    out.arrived.reserve(std::size_t{r.arrived()->size()} * 8);
    for (const std::uint8_t eight : *r.arrived())
        for (unsigned bit = 0; bit < 8; ++bit) out.arrived.push_back(eight >> bit & 1U);
    return out;
}

std::optional<std::uint64_t> offered_request(ConstByteSpan offer) {
    try {
        return verified_root<wire::Manifest>(offer, "manifest").request_id();
    } catch (const ProtocolError&) {
        return std::nullopt;
    }
}

}  // namespace lynx
