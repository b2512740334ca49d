// The end that is Lynx: its public API, as an embedder uses it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "end.hpp"
#include "lynx/buffer.hpp"
#include "lynx/manifest.hpp"
#include "lynx/node.hpp"
#include "lynx/peer.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::bench {

struct LynxOptions {
    std::string provider;
    std::string host;
    std::size_t memory_bytes = 0;  ///< the most that is on its way at once
    bool checksums = true;
};

class LynxEnd final : public End {
   public:
    LynxEnd(bool sends, const LynxOptions& options);

    std::string endpoint() override;
    void connect(const std::string& endpoint) override;
    void goodput(const Load& load, const Answer& answer) override;
    void latency(std::size_t bytes, std::size_t count, const Answer& answer) override;
    void contend(const Contention& contention, const Answer& answer) override;

   private:
    [[nodiscard]] Peer& peer();
    /// A manifest of `tensors` K tensors, each of so many bytes of bf16, the residual's class if `residual`.
    [[nodiscard]] Manifest manifest(std::size_t tensors, std::size_t tensor_bytes, std::size_t chunk_bytes,
                                    bool residual = false);
    [[nodiscard]] TensorView source(const Manifest& manifest, std::size_t tensor);
    [[nodiscard]] PlaneReceiver next_offer();
    [[nodiscard]] std::string send(const Load& load);
    [[nodiscard]] std::string receive(const Answer& answer);
    void receive_contention(const Contention& contention, const Answer& answer);

    const bool sends_;
    const bool checksums_;
    const std::string host_;
    Node node_;
    std::optional<Listener> listener_;  ///< the receiver's
    std::optional<Peer> peer_;
    Buffer source_;
    std::uint64_t next_request_ = 1;
};

}  // namespace lynx::bench
