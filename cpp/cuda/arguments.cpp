#include "arguments.hpp"

#include <algorithm>

#include "chunk.hpp"
#include "codec/checks.hpp"
#include "core/text.hpp"
#include "exact_terms.hpp"
#include "lynx/cuda.hpp"
#include "lynx/error.hpp"

namespace lynx::cuda {
namespace {

/// The largest power of two that divides all of `bits`, up to the widest access.
unsigned alignment_of(std::uint64_t bits) {
    unsigned alignment = 1;
    while (alignment < kWide && bits % (2 * std::uint64_t{alignment}) == 0) alignment *= 2;
    return alignment;
}

unsigned alignment_of(const std::byte* at) {
    return alignment_of(reinterpret_cast<std::uintptr_t>(at));
}

template <class Byte>
Tensor<Byte> checked_tensor(const char* call, const char* which, const BasicTensorView<Byte>& view,
                            const TensorSpec& spec) {
    codec::check_view(call, which, view, spec);
    if (view.strides[2] != 1)
        throw InvalidArgument(text(call, ": ", which, ".strides[2] is ", view.strides[2],
                                   "; on a device the elements of a head vector have to be adjacent: make it "
                                   "contiguous in its last axis first"));
    const auto size = static_cast<std::int64_t>(size_of(view.dtype));
    const std::int64_t head_step = spec.heads == 1 ? 0 : view.strides[0] * size;
    const std::int64_t token_step = spec.tokens == 1 ? 0 : view.strides[1] * size;
    const unsigned alignment =
        alignment_of(reinterpret_cast<std::uintptr_t>(view.data) | static_cast<std::uint64_t>(head_step) |
                     static_cast<std::uint64_t>(token_step));
    if (alignment < size_of(view.dtype))
        throw InvalidArgument(
            text(call, ": ", which, ".data is not at a multiple of the element's ", size_of(view.dtype), " bytes"));
    return {view.data, head_step, token_step, alignment};
}

template <class Byte>
void check_coded(const char* call, std::span<Byte> coded, const PlaneLayout& layout) {
    codec::check_size(call, "coded", coded.size(), layout);
    if (alignment_of(coded.data()) < kWide)
        throw InvalidArgument(text(call, ": coded does not begin at a multiple of ", kWide, " bytes"));
}

void check_dtype(const char* call, DType src, const TensorSpec& spec) {
    if (src != spec.dtype)
        throw InvalidArgument(text(call, ": src.dtype is ", name_of(src), " and the layout's is ", name_of(spec.dtype),
                                   "; bits are sent as they are, so they have to be the same"));
}

/// `with_sinks`: are they to be looked at?
template <class Byte>
Planes<Byte> planes_of(const PlaneLayout& layout, Byte* coded, bool with_sinks) {
    const TensorSpec& spec = layout.spec();
    return {.heads = spec.heads,
            .tokens = spec.tokens,
            .scales = coded + layout.scales().offset,
            .zeros = coded + layout.zeros().offset,
            .planes = coded + layout.plane(0).offset,
            .sinks = coded + layout.sinks().offset,
            .plane_step = layout.plane(0).bytes,
            .sink_tokens = with_sinks ? layout.sink_tokens() : 0,
            .anchor_bits = spec.anchor_bits};
}

/// A tensor with an exact tier has so few bytes that its vectors fit 32 bits.
Groups groups_of(const PlaneLayout& layout) {
    return {static_cast<std::uint32_t>(layout.vectors()), static_cast<std::uint32_t>(layout.group_vectors()),
            static_cast<std::uint32_t>(layout.groups())};
}

template <class Byte>
Tensor<Byte> packed_tensor(const PlaneLayout& layout, Byte* coded) {
    const TensorSpec& spec = layout.spec();
    const auto token_step = static_cast<std::int64_t>(spec.head_dim * size_of(spec.dtype));
    const std::int64_t head_step = token_step * spec.tokens;
    return {coded, head_step, token_step, alignment_of(static_cast<std::uint64_t>(token_step))};
}

}  // namespace

EncodeJob encode_job(const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                     std::uint64_t* nonfinite_vectors) {
    constexpr const char* kCall = "cuda::encode";
    const Tensor<const std::byte> tensor = checked_tensor(kCall, "src", src, layout.spec());
    check_coded(kCall, coded, layout);
    return {tensor, planes_of(layout, coded.data(), true), nonfinite_vectors};
}

DecodeJob decode_job(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes, const MutableTensorView& dst) {
    constexpr const char* kCall = "cuda::decode";
    const Tensor<std::byte> tensor = checked_tensor(kCall, "dst", dst, layout.spec());
    check_coded(kCall, coded, layout);
    codec::check_planes(kCall, layout, planes);
    const bool with_sinks = planes >= layout.spec().anchor_bits && planes < kPlaneCount;
    return {planes_of(layout, coded.data(), with_sinks), planes, tensor};
}

ExactEncodeJob exact_encode_job(const TensorView& src, const PlaneLayout& layout, ByteSpan coded, ByteSpan workspace) {
    constexpr const char* kCall = "cuda::encode_exact";
    const Tensor<const std::byte> tensor = checked_tensor(kCall, "src", src, layout.spec());
    check_coded(kCall, coded, layout);
    codec::check_exact(kCall, layout);
    check_dtype(kCall, src.dtype, layout.spec());
    const std::size_t needed = exact_workspace_bytes(layout);
    if (workspace.size() < needed || alignment_of(workspace.data()) < alignof(std::uint32_t))
        throw InvalidArgument(text(kCall, ": workspace holds ", workspace.size(), " bytes; it has to hold ", needed,
                                   ", at a multiple of 4 bytes (exact_workspace_bytes)"));
    std::byte* payload = coded.data() + layout.exact_payload().offset;
    return {.src = tensor,
            .coded = planes_of<const std::byte>(layout, coded.data(), false),
            .groups = groups_of(layout),
            .index = coded.data() + layout.exact_index().offset,
            .payload = payload,
            .payload_alignment = alignment_of(payload),
            .tile_ends = reinterpret_cast<std::uint32_t*>(workspace.data())};
}

ExactDecodeJob exact_decode_job(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& dst,
                                std::uint32_t* first_fault) {
    constexpr const char* kCall = "cuda::decode_exact";
    const Tensor<std::byte> tensor = checked_tensor(kCall, "dst", dst, layout.spec());
    check_coded(kCall, coded, layout);
    codec::check_exact(kCall, layout);
    if (first_fault == nullptr)
        throw InvalidArgument(text(kCall, ": first_fault is null; it is where a bad group is reported"));
    const std::byte* payload = coded.data() + layout.exact_payload().offset;
    return {.coded = planes_of(layout, coded.data(), false),
            .groups = groups_of(layout),
            .index = coded.data() + layout.exact_index().offset,
            .payload = payload,
            .payload_bytes = layout.exact_payload().bytes,
            .payload_alignment = alignment_of(payload),
            .dst = tensor,
            .fault = first_fault};
}

RawJob raw_encode_job(const TensorView& src, const PlaneLayout& layout, ByteSpan coded) {
    constexpr const char* kCall = "cuda::encode";
    const Tensor<const std::byte> tensor = checked_tensor(kCall, "src", src, layout.spec());
    check_coded(kCall, coded, layout);
    check_dtype(kCall, src.dtype, layout.spec());
    return {layout.spec().heads, layout.spec().tokens, tensor, packed_tensor(layout, coded.data())};
}

RawJob raw_decode_job(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes, const MutableTensorView& dst) {
    constexpr const char* kCall = "cuda::decode";
    const Tensor<std::byte> tensor = checked_tensor(kCall, "dst", dst, layout.spec());
    check_coded(kCall, coded, layout);
    codec::check_planes(kCall, layout, planes);
    return {layout.spec().heads, layout.spec().tokens, packed_tensor(layout, coded.data()), tensor};
}

std::size_t exact_workspace_bytes(const PlaneLayout& layout) noexcept {
    return layout.has_exact() ? tiles_of(groups_of(layout)) * sizeof(std::uint32_t) : 0;
}

}  // namespace lynx::cuda
