// The sending server.
#include <cinttypes>
#include <cstdio>

#include "cancel.hpp"
#include "interrupt.hpp"
#include "lynx/node.hpp"
#include "lynx/peer.hpp"
#include "roles.hpp"

namespace {

// Computes a layer, hands it over, and goes on to the next: while that one is computed, this one is on the wire. When
// put() returns, the tensor is coded into registered memory, so one buffer serves for all layers.
void compute_and_put(lynx::PlaneSender& sender, const CacheShape& shape) {
    CacheTensor tensor(shape);
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
        for (const auto role : {lynx::TensorRole::kKey, lynx::TensorRole::kValue}) {
            throw_if_interrupted();
            tensor.compute(layer, role);
            sender.put(layer, role, tensor.view());
        }
    }
}

void serve(lynx::Peer& peer, const lynx::Manifest& manifest, const Options& options) {
    // The offer comes before the work: the receiver has made room by the time the first layer is computed.
    lynx::PlaneSender sender =
        peer.offer(manifest, lynx::Deadline::after(kAnswerPatience), {.bytes_per_second = options.bytes_per_second});
    const auto written = [&] {
        const lynx::SendProgress progress = sender.progress();
        return progress.written_bytes[0] + progress.written_bytes[1];
    };
    try {
        compute_and_put(sender, options.shape);
        // What has been written has left this machine; whether it was read, only the receiver can say.
        wait_for(
            "the receiver to take the cache and confirm it", kStallPatience,
            [&](lynx::Deadline slice) { return peer.finish(sender, slice); }, written);
    } catch (const Interrupted&) {
        cancel_for(peer, sender, "the prefill process was interrupted");
        throw;
    }
    std::printf("sent %" PRIu64 " bytes to %s\n", written(), peer.name().c_str());
}

}  // namespace

void run_prefill(const Options& options) {
    const lynx::Manifest manifest = make_manifest(options.shape, /*request_id=*/1);
    manifest.validate();  // a shape that cannot be sent is refused before anybody waits for it

    const lynx::Node node({.fabric = {.provider = options.provider, .host = options.own_host}});
    lynx::Listener listener(node, options.address.host, options.address.port);
    std::printf("listening %d\n", int{listener.port()});
    std::fflush(stdout);

    lynx::Peer peer = *wait_for("a decode process to connect", kPeerPatience,
                                [&](lynx::Deadline slice) { return listener.accept(slice); });
    serve(peer, manifest, options);
}
