// What is about to be sent: the first message of a transfer, from the prefill node to the decode node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lynx/buffer.hpp"
#include "lynx/export.hpp"
#include "lynx/fabric.hpp"
#include "lynx/plane_layout.hpp"

namespace lynx {

inline constexpr std::uint16_t kManifestVersion = 3;
inline constexpr std::uint32_t kMaxTensors = 1u << 14;
inline constexpr std::uint32_t kMinChunkBytes = 4u << 10;
inline constexpr std::uint32_t kMaxChunkBytes = 64u << 20;
inline constexpr std::uint32_t kDefaultChunkBytes = 64u << 10;
inline constexpr std::uint32_t kMaxRanks = 256;  ///< that send one request, or receive it
inline constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 44;

enum class TensorRole : std::uint8_t { kKey = 0, kValue = 1 };

/// K or V of one layer, or a piece of it: a range of tokens (prefill in chunks) and of heads (a shard).
struct ManifestTensor {
    std::uint32_t layer = 0;
    TensorRole role = TensorRole::kKey;
    TensorSpec spec;
    std::uint32_t first_token = 0;  ///< where the piece begins in the layer's tensor
    std::uint32_t first_head = 0;

    friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

/// Consecutive layers, and of each the same consecutive heads.
struct Shard {
    std::uint32_t first_layer = 0;
    std::uint32_t layers = 0;
    std::uint32_t first_head = 0;
    std::uint32_t heads = 0;

    friend bool operator==(const Shard&, const Shard&) = default;
};

/// Of a request that several ranks send or receive, all in transfers of the same request_id: which one this is. See
/// lynx/shards.hpp, which fills it in.
struct ManifestShard {
    std::uint32_t sender = 0;  ///< the sending rank, of `senders`
    std::uint32_t senders = 1;
    std::uint32_t receiver = 0;  ///< the receiving rank, of `receivers`
    std::uint32_t receivers = 1;
    std::uint32_t total_layers = 0;  ///< of the whole cache
    std::uint32_t total_heads = 0;   ///< of its widest layer
    /// By the sending rank, in layer order; every tensor lies in it. Empty where there is one sender and one receiver.
    std::vector<Shard> owned;

    friend bool operator==(const ManifestShard&, const ManifestShard&) = default;
};

/// Layers need not be alike: each tensor has its own heads, tokens, head_dim and anchor width.
struct LYNX_API Manifest {
    std::uint64_t request_id = 0;
    std::string model;
    std::uint32_t context_tokens = 0;
    /// The token that prefill sampled from its exact cache; -1 while prefill still runs: it follows (see
    /// PlaneReceiver::first_token).
    std::int32_t first_token = -1;
    /// How many parts of each tensor are sent: 1 for the anchors alone, 1 + rungs with the residuals, 2 + rungs with
    /// the exact tiers.
    std::uint8_t parts = 2;
    /// The coded bytes of one write, at most. 0: Peer::offer takes what suits the bandwidth that was measured to the
    /// peer (Node::chunk_bytes_for); elsewhere it means kDefaultChunkBytes.
    std::uint32_t chunk_bytes = 0;
    /// Is every chunk checked (XXH3) before it is published? Costs a few percent of a CPU core at 2 GB/s.
    bool checksums = true;
    /// In sending order. The pieces of K, or of V, of a layer form rows: each range of tokens is covered by one
    /// consecutive run of heads, the same for all, and the ranges follow each other.
    std::vector<ManifestTensor> tensors;
    ManifestShard shard{};
    /// In how many parts the residual travels, 1 to kMaxRungs (see PlaneLayout). More than one is the *plane ladder*:
    /// all layers get their next plane before any gets the one behind it. 1 where a tensor is kRaw.
    std::uint8_t rungs = 1;

    /// The part that completes the residual, and that of the exact tier, whether they are sent or not.
    [[nodiscard]] unsigned residual_part() const noexcept { return rungs; }
    [[nodiscard]] unsigned exact_part() const noexcept { return rungs + 1u; }

    /// Throws InvalidArgument naming the field that is out of range.
    void validate() const;
    /// Validates, then writes the FlatBuffer that travels.
    [[nodiscard]] std::vector<std::byte> serialize() const;
    /// Reads bytes from a stranger: throws ProtocolError for anything malformed, of another version (naming
    /// both) or out of range, before it allocates by what they claim.
    [[nodiscard]] static Manifest parse(ConstByteSpan bytes);

    friend bool operator==(const Manifest&, const Manifest&) = default;
};

inline constexpr std::size_t kMaxRails = 8;

/// The receiver's answer: where to write, and how fast at most. It holds for one transfer and ends with it.
struct LYNX_API Grant {
    std::uint64_t request_id = 0;
    std::uint32_t slot = 0;
    std::uint64_t seed = 0;              ///< of the checksums; random, so that no other transfer's bytes have them
    std::uint64_t bytes_per_second = 0;  ///< 0: no limit
    std::vector<RemoteRegion> regions;   ///< the slot, as each rail of the receiver reaches it; 1 to kMaxRails

    [[nodiscard]] std::vector<std::byte> serialize() const;
    /// As Manifest::parse.
    [[nodiscard]] static Grant parse(ConstByteSpan bytes);
};

}  // namespace lynx
