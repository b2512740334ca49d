#include "fabric/control_frame.hpp"

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx::fabric {

FrameHeader read_header(const FrameBytes& bytes, std::size_t max_payload, const std::string& peer) {
    const auto refuse = [&peer](const std::string& why) {
        throw ProtocolError(text("control connection to ", peer, ": ", why, "; the connection is closed"));
    };
    const FrameHeader header = FrameHeader::unpack(bytes);
    if (header.magic != FrameHeader::kMagic) refuse("what came is no Lynx message; is the port that of a Lynx peer?");
    if (header.version != kControlVersion)
        refuse(text("the peer speaks version ", int{header.version}, " of the control protocol and this side version ",
                    int{kControlVersion}, "; install the same Lynx on both sides"));
    if (header.kind > FrameKind::kRefusal || header.zero != 0)
        refuse(text("a message of type ", int{header.type}, " has its reserved field set"));
    if (header.payload_bytes > max_payload)
        refuse(text("a message of type ", int{header.type}, " claims ", header.payload_bytes, " bytes; at most ",
                    max_payload, " are accepted", max_payload < kMaxControlPayload ? " before the peer is known" : ""));
    return header;
}

void throw_refused(std::uint8_t refusal, const std::string& peer) {
    const auto words = [refusal] {
        switch (static_cast<Refusal>(refusal)) {
            case Refusal::kKeyNeeded: return "the peer wants a pre-shared key, and none was given here";
            case Refusal::kNoKeyHere: return "a pre-shared key was given here, and the peer has none";
            case Refusal::kWrongKey: return "the peer has another pre-shared key than the one given here";
        }
        return "the peer refuses to authenticate";
    };
    throw AuthenticationFailed(
        text("control connection to ", peer, ": ", words(), "; give both sides the same key (--key-file)"));
}

}  // namespace lynx::fabric
