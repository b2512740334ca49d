// Where the scales, zeros and planes of one coded tensor lie. Pure arithmetic: both ends derive the same
// layout from the same TensorSpec, so no offset ever travels. docs/wire-format.md says the same in words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lynx/dtype.hpp"
#include "lynx/export.hpp"

namespace lynx {

/// How a tensor is coded. The values are part of the wire format.
enum class Coding : std::uint8_t {
    kRaw = 0,     ///< the source's bits as they are, one plane, one part: the blocking baseline
    kPlanes = 1,  ///< rotated, quantized to 8 bits, cut into 8 planes, most significant first
};

inline constexpr unsigned kPlaneCount = 8;
inline constexpr unsigned kTiers = 3;     ///< anchor, residual, exact tier
inline constexpr unsigned kMaxRungs = 7;  ///< an anchor has one plane at least, a rung that adds something too
inline constexpr unsigned kMaxParts = 1 + kMaxRungs + 1;
inline constexpr std::uint32_t kMaxHeadDim = 1024;
inline constexpr std::uint32_t kMaxHeads = 1u << 16;
inline constexpr std::uint32_t kMaxTokens = 1u << 26;
inline constexpr std::uint16_t kMaxSinkTokens = 1024;

// The anchor to use where nothing else is known, 4.5 bits a value. An error of K moves every attention weight and
// costs more than ten times what the same error of V does; and the first tokens draw attention from everywhere
// (attention sinks), so that their error does not average out. Python's CacheCoding gives the last layer's V one plane
// less, which pays for the sinks of all layers. docs/quality.md has the figures.
inline constexpr std::uint8_t kDefaultKeyAnchorBits = 5;
inline constexpr std::uint8_t kDefaultValueAnchorBits = 3;
inline constexpr std::uint16_t kDefaultSinkTokens = 4;

/// What has to be known to lay out one K or V tensor of one layer.
struct TensorSpec {
    Coding coding = Coding::kPlanes;
    DType dtype = DType::kBF16;  ///< of the source; what kRaw sends, what the exact tier restores
    std::uint32_t heads = 0;
    std::uint32_t tokens = 0;
    std::uint32_t head_dim = 0;    ///< a multiple of 8, up to kMaxHeadDim
    std::uint8_t anchor_bits = 4;  ///< planes in the anchor, 1-8; ignored for kRaw
    /// How many of the first tokens have all their bits in the anchor, up to kMaxSinkTokens and fewer if there
    /// are fewer tokens; ignored for kRaw. With anchor_bits = 8 all tokens have.
    std::uint16_t sink_tokens = 0;
    /// Is there a correction behind the planes that restores the source bit for bit? For bf16 and fp16 sources in
    /// kPlanes; ignored for kRaw, which is exact.
    bool exact = false;

    friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// A run of bytes inside a coded tensor.
struct Extent {
    std::size_t offset = 0;
    std::size_t bytes = 0;

    [[nodiscard]] std::size_t end() const noexcept { return offset + bytes; }
    friend bool operator==(const Extent&, const Extent&) = default;
};

/// The order is: scales, zeros, sinks, plane 0 (most significant) ... plane 7. Vectors are head-major: vector
/// (head, token) has index head * tokens + token in scales, zeros and planes, and head * sink_tokens + token in
/// the sinks, which repeat what the residual's planes hold of the first tokens.
///
/// A *part* is what is sent, counted and published as one. Part 0 is the anchor: scales, zeros, sinks and the
/// `anchor_bits` first planes. The residual, the other planes, is in `rungs` parts: each adds one plane as long as
/// there is one, the last all that are left, so that with one rung part 1 is the whole residual. Behind them, if there
/// is one, is the exact tier: the index of its groups, then their bits, whose number depends on the values; its extent
/// is the most that they can take. Each part is one contiguous extent; a rung without a plane exists and is empty, as
/// part 1 is with anchor_bits = 8. kRaw has part 0 alone. The extent of a plane or part past the last is empty and lies
/// at the end.
class LYNX_API PlaneLayout {
   public:
    /// Throws InvalidArgument naming the field that is out of range.
    explicit PlaneLayout(const TensorSpec& spec);

    [[nodiscard]] const TensorSpec& spec() const noexcept { return spec_; }
    [[nodiscard]] std::size_t vectors() const noexcept { return vectors_; }
    [[nodiscard]] std::size_t bytes() const noexcept;
    [[nodiscard]] bool has_exact() const noexcept;  ///< never for kRaw

    [[nodiscard]] Extent scales() const noexcept;  ///< fp16 each; empty for kRaw
    [[nodiscard]] Extent zeros() const noexcept;   ///< fp16 each; empty for kRaw
    /// Of each sink vector the planes anchor_bits to 7, head_dim / 8 bytes each, adjacent. May be empty.
    [[nodiscard]] Extent sinks() const noexcept;
    [[nodiscard]] std::uint32_t sink_tokens() const noexcept;   ///< of each head in sinks(); 0 if that is empty
    [[nodiscard]] Extent plane(unsigned index) const noexcept;  ///< 0 is the most significant
    [[nodiscard]] unsigned planes() const noexcept;             ///< 1 for kRaw, else 8

    /// Of the exact tier: for each group of group_vectors() vectors where it ends in exact_payload(), a u32 in units
    /// of 8 bytes. Empty if there is no exact tier, as the payload is.
    [[nodiscard]] Extent exact_index() const noexcept;
    [[nodiscard]] Extent exact_payload() const noexcept;  ///< as many bytes as the source
    [[nodiscard]] std::size_t group_vectors() const noexcept;
    [[nodiscard]] std::size_t groups() const noexcept;

    // `rungs` is 1 to kMaxRungs.
    [[nodiscard]] unsigned parts(unsigned rungs = 1) const noexcept;  ///< 1 for kRaw, else 1 + rungs, or 2 + if exact
    [[nodiscard]] Extent part(unsigned index, unsigned rungs = 1) const noexcept;
    /// How many planes can be decoded once the parts 0..index are there.
    [[nodiscard]] unsigned planes_through(unsigned index, unsigned rungs = 1) const noexcept;

   private:
    TensorSpec spec_;
    std::size_t vectors_;
    std::size_t plane_bytes_;
};

}  // namespace lynx
