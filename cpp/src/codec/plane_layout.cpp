#include "lynx/plane_layout.hpp"

#include <algorithm>

#include "codec/exact_tier.hpp"
#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace {

using codec::kGroupAlignment;
using codec::kMaxGroupValues;

void check_range(const char* field, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (value < least || value > most)
        throw InvalidArgument(text("TensorSpec: ", field, " is ", value, "; it has to be ", least, " to ", most));
}

// Where a group ends is a u32 in units of kGroupAlignment.
constexpr std::uint64_t kMaxExactBytes = std::uint64_t{UINT32_MAX} * kGroupAlignment;

void check_exact(const TensorSpec& spec) {
    if (size_of(spec.dtype) != 2)
        throw InvalidArgument(text("TensorSpec: exact is asked for with dtype ", name_of(spec.dtype),
                                   "; there is an exact tier for bf16 and fp16 alone"));
    const std::uint64_t bytes = std::uint64_t{spec.heads} * spec.tokens * spec.head_dim * 2;
    if (bytes > kMaxExactBytes)
        throw InvalidArgument(text("TensorSpec: exact is asked for of a tensor of ", bytes, " bytes; the most is ",
                                   kMaxExactBytes, ": cut it by heads or tokens"));
}

TensorSpec checked(const TensorSpec& spec) {
    if (spec.coding != Coding::kRaw && spec.coding != Coding::kPlanes)
        throw InvalidArgument(
            text("TensorSpec: coding is ", static_cast<unsigned>(spec.coding), "; it has to be 0 (raw) or 1 (planes)"));
    if (!is_valid(spec.dtype))
        throw InvalidArgument(text("TensorSpec: dtype is ", static_cast<unsigned>(spec.dtype),
                                   "; it has to be 0 (bf16), 1 (fp16) or 2 (fp32)"));
    check_range("heads", spec.heads, 1, kMaxHeads);
    check_range("tokens", spec.tokens, 0, kMaxTokens);
    if (spec.head_dim == 0 || spec.head_dim % 8 != 0 || spec.head_dim > kMaxHeadDim)
        throw InvalidArgument(
            text("TensorSpec: head_dim is ", spec.head_dim, "; it has to be a multiple of 8 from 8 to ", kMaxHeadDim));
    if (spec.coding == Coding::kPlanes) {
        check_range("anchor_bits", spec.anchor_bits, 1, kPlaneCount);
        check_range("sink_tokens", spec.sink_tokens, 0, kMaxSinkTokens);
        if (spec.exact) check_exact(spec);
    }
    return spec;
}

constexpr std::size_t kScaleBytes = 2;
constexpr std::size_t kIndexBytes = 4;
constexpr std::size_t kMaxGroupVectors = 32;

}  // namespace

PlaneLayout::PlaneLayout(const TensorSpec& spec)
    : spec_(checked(spec)),
      vectors_(std::size_t{spec.heads} * spec.tokens),
      plane_bytes_(vectors_ * (spec.coding == Coding::kRaw ? size_of(spec.dtype) * spec.head_dim : spec.head_dim / 8)) {
    static_assert(std::size_t{kMaxHeads} * kMaxTokens <= SIZE_MAX / (std::size_t{4} * kMaxHeadDim),
                  "the largest tensor's bytes have to fit size_t");
}

std::size_t PlaneLayout::bytes() const noexcept {
    return exact_payload().end();
}

Extent PlaneLayout::scales() const noexcept {
    return {0, spec_.coding == Coding::kRaw ? 0 : vectors_ * kScaleBytes};
}

Extent PlaneLayout::zeros() const noexcept {
    const Extent before = scales();
    return {before.end(), before.bytes};
}

std::uint32_t PlaneLayout::sink_tokens() const noexcept {
    if (spec_.coding == Coding::kRaw || spec_.anchor_bits == kPlaneCount) return 0;
    return std::min<std::uint32_t>(spec_.sink_tokens, spec_.tokens);
}

Extent PlaneLayout::sinks() const noexcept {
    const std::size_t vectors = std::size_t{spec_.heads} * sink_tokens();
    return {zeros().end(), vectors == 0 ? 0 : vectors * (kPlaneCount - spec_.anchor_bits) * (spec_.head_dim / 8)};
}

Extent PlaneLayout::plane(unsigned index) const noexcept {
    if (index >= planes()) return {bytes(), 0};
    return {sinks().end() + index * plane_bytes_, plane_bytes_};
}

bool PlaneLayout::has_exact() const noexcept {
    return spec_.coding == Coding::kPlanes && spec_.exact;
}

std::size_t PlaneLayout::group_vectors() const noexcept {
    return std::min(kMaxGroupVectors, kMaxGroupValues / spec_.head_dim);
}

std::size_t PlaneLayout::groups() const noexcept {
    return (vectors_ + group_vectors() - 1) / group_vectors();
}

Extent PlaneLayout::exact_index() const noexcept {
    return {sinks().end() + planes() * plane_bytes_, has_exact() ? groups() * kIndexBytes : 0};
}

Extent PlaneLayout::exact_payload() const noexcept {
    return {exact_index().end(), has_exact() ? vectors_ * spec_.head_dim * size_of(spec_.dtype) : 0};
}

unsigned PlaneLayout::planes() const noexcept {
    return spec_.coding == Coding::kRaw ? 1 : kPlaneCount;
}

unsigned PlaneLayout::parts(unsigned rungs) const noexcept {
    if (spec_.coding == Coding::kRaw) return 1;
    return 1 + rungs + (has_exact() ? 1 : 0);
}

Extent PlaneLayout::part(unsigned index, unsigned rungs) const noexcept {
    if (index >= parts(rungs)) return {bytes(), 0};
    const std::size_t planes_end = exact_index().offset;
    if (index > rungs) return {planes_end, bytes() - planes_end};
    const std::size_t begin = index == 0 ? 0 : plane(planes_through(index - 1, rungs) - 1).end();
    return {begin, plane(planes_through(index, rungs) - 1).end() - begin};
}

unsigned PlaneLayout::planes_through(unsigned index, unsigned rungs) const noexcept {
    if (spec_.coding == Coding::kRaw || index >= rungs) return planes();
    return std::min(spec_.anchor_bits + index, kPlaneCount);
}

}  // namespace lynx
