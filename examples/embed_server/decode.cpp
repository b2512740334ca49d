// The receiving server.
#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "arrivals.hpp"
#include "cancel.hpp"
#include "interrupt.hpp"
#include "lynx/node.hpp"
#include "lynx/peer.hpp"
#include "roles.hpp"

namespace {

// Values of standard deviation 1 span about 6 after the rotation, of which 8 steps (V's 3 bits) or 256 (8 bits) are
// made. Rotated back, an error is nearly normal, with step / sqrt(12) as its deviation; these are more than 7 of them.
constexpr std::array<float, kParts> kErrorBound{2.0f, 0.08f};

struct Decoded {
    double ms = 0;        ///< spent in decode()
    float max_error = 0;  ///< over all values
};

// As an engine does it: layer by layer, each as soon as it is there, while later ones are on the wire.
Decoded decode_part(const lynx::PlaneReceiver& receiver, const CacheShape& shape, unsigned part) {
    Decoded result;
    CacheTensor tensor(shape);
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
        wait_for(
            "layer " + std::to_string(layer) + " of the cache", kStallPatience,
            [&](lynx::Deadline slice) { return receiver.wait(layer, part, slice); },
            [&] { return receiver.revision().arrived_bytes; });
        for (const auto role : {lynx::TensorRole::kKey, lynx::TensorRole::kValue}) {
            const auto start = lynx::Clock::now();
            receiver.decode(layer, role, part, tensor.mutable_view());
            result.ms += ms_since(start);
            const float error = tensor.max_error(layer, role);
            if (!(error <= result.max_error)) result.max_error = error;  // a NaN is taken, too
        }
    }
    return result;
}

void print_manifest(const CacheShape& shape, const lynx::Revision& revision, double ms) {
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(),
                  "manifest: %" PRIu64 " bytes, %" PRIu32 " layers, %" PRIu32 " tokens, %" PRIu32 " heads of %" PRIu32,
                  revision.part_bytes[0] + revision.part_bytes[1], shape.layers, shape.tokens, shape.heads,
                  shape.head_dim);
    print_event(ms, line.data());
}

bool receive(lynx::Peer& peer, lynx::PlaneReceiver& receiver, lynx::Clock::time_point offered) {
    const CacheShape shape = shape_of(receiver.manifest());
    print_manifest(shape, receiver.revision(), ms_since(offered));

    Arrivals arrivals(receiver, shape.layers, offered);
    const Decoded coarse = decode_part(receiver, shape, 0);
    const Decoded fine = decode_part(receiver, shape, 1);
    arrivals.join();
    peer.finish(receiver);  // the sender may forget the cache now

    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "decoded: anchor in %.1f ms, all planes in %.1f ms", coarse.ms, fine.ms);
    print_event(ms_since(offered), line.data());
    const auto bytes = receiver.revision().part_bytes;
    std::printf("anchor      %10" PRIu64 " bytes, usable after %.1f ms, max error %.4f\n", bytes[0],
                arrivals.complete_ms(0), coarse.max_error);
    std::printf("all planes  %10" PRIu64 " bytes, usable after %.1f ms, max error %.4f\n", bytes[0] + bytes[1],
                arrivals.complete_ms(1), fine.max_error);
    return coarse.max_error <= kErrorBound[0] && fine.max_error <= kErrorBound[1];
}

}  // namespace

bool run_decode(const Options& options) {
    const lynx::Node node({.fabric = {.provider = options.provider, .host = options.own_host}});
    lynx::Peer peer =
        lynx::Peer::connect(node, options.address.host, options.address.port, lynx::Deadline::after(kAnswerPatience));
    lynx::PlaneReceiver receiver =
        *wait_for("an offer", kAnswerPatience, [&](lynx::Deadline slice) { return peer.accept_offer(slice); });
    const auto offered = lynx::Clock::now();
    try {
        return receive(peer, receiver, offered);
    } catch (const Interrupted&) {
        cancel_for(peer, receiver, "the decode process was interrupted");
        throw;
    } catch (const lynx::InvalidArgument& error) {
        cancel_for(peer, receiver, error.what());
        throw;
    }
}
