#include "codec/exact.hpp"

#include <algorithm>
#include <cstring>

#include "codec/convert.hpp"
#include "codec/raw.hpp"
#include "codec/strided.hpp"

namespace lynx::codec {
namespace {

constexpr std::size_t kIndexBytes = sizeof(std::uint32_t);
constexpr std::size_t kMaxGroupBytes = kMaxGroupValues * 2;

/// Where a group lies among the vectors.
struct Group {
    std::size_t first;
    std::size_t vectors;
    std::size_t raw_bytes;  ///< what its values take as they are
};

Group group_at(const PlaneLayout& layout, std::size_t index) noexcept {
    const std::size_t first = index * layout.group_vectors();
    const std::size_t vectors = std::min(layout.group_vectors(), layout.vectors() - first);
    return {first, vectors, vectors * layout.spec().head_dim * 2};
}

/// x̂ of a group: what its 8 planes decode to, vector behind vector.
void reconstruct(const Kernels& kernels, const PlaneLayout& layout, const std::byte* coded, const Group& group,
                 std::byte* reference) noexcept {
    const TensorSpec& spec = layout.spec();
    kernels.decode[static_cast<std::size_t>(spec.dtype)](
        {.scales = coded + layout.scales().offset + 2 * group.first,
         .zeros = coded + layout.zeros().offset + 2 * group.first,
         .planes = coded + layout.plane(0).offset + group.first * (spec.head_dim / 8),
         .plane_step = layout.plane(0).bytes,
         .plane_count = kPlaneCount,
         .vectors = group.vectors,
         .head_dim = spec.head_dim,
         .dst = reference,
         .dst_step = static_cast<std::ptrdiff_t>(std::size_t{spec.head_dim} * 2)});
}

/// The group's values as the kernel wants them: where they are if one step leads through them, else gathered.
Run<const std::byte> adjacent(const TensorView& src, const Group& group, std::byte* gathered) noexcept {
    const auto head_dim = static_cast<std::size_t>(src.head_dim());
    Run<const std::byte> found{gathered, static_cast<std::ptrdiff_t>(head_dim * 2), 2, group.vectors, group.first};
    for_each_run(src, group.first, group.vectors, [&](const Run<const std::byte>& run) {
        if (run.vectors == group.vectors && run.element == 2)
            found = run;
        else
            gather(run, head_dim, 2, gathered + (run.first - group.first) * head_dim * 2);
    });
    return found;
}

/// Where a kernel can write the whole group: the destination itself if one step leads through it and nothing has to
/// be converted, else `values`.
Run<std::byte> writable(const MutableTensorView& dst, const Group& group, DType coded_as, std::byte* values) noexcept {
    const auto row_bytes = static_cast<std::ptrdiff_t>(dst.head_dim() * 2);
    Run<std::byte> found{values, row_bytes, 2, group.vectors, group.first};
    for_each_run(dst, group.first, group.vectors, [&](const Run<std::byte>& run) {
        if (run.vectors == group.vectors && run.element == 2 && dst.dtype == coded_as) found = run;
    });
    return found;
}

}  // namespace

std::size_t encode_exact(const Kernels& kernels, const TensorView& src, const PlaneLayout& layout,
                         ByteSpan coded) noexcept {
    const TensorSpec& spec = layout.spec();
    const ExactEncodeFn encode_group = kernels.encode_exact[static_cast<std::size_t>(spec.dtype)];
    alignas(64) std::byte gathered[kMaxGroupBytes];
    alignas(64) std::byte reference[kMaxGroupBytes];
    alignas(64) std::byte bits[kMaxGroupBytes + kExactSlack];
    std::byte* index = coded.data() + layout.exact_index().offset;
    std::byte* payload = coded.data() + layout.exact_payload().offset;
    std::size_t end = 0;
    for (std::size_t g = 0; g < layout.groups(); ++g) {
        const Group group = group_at(layout, g);
        reconstruct(kernels, layout, coded.data(), group, reference);
        const Run<const std::byte> run = adjacent(src, group, gathered);
        const std::size_t bytes = encode_group({.src = run.data,
                                                .src_step = run.step,
                                                .reference = reference,
                                                .scales = coded.data() + layout.scales().offset + 2 * group.first,
                                                .vectors = group.vectors,
                                                .head_dim = spec.head_dim,
                                                .dst = bits,
                                                .limit = group.raw_bytes});
        if (bytes < group.raw_bytes)
            std::memcpy(payload + end, bits, bytes);
        else
            gather(run, spec.head_dim, 2, payload + end);
        end += bytes;
        store(index + g * kIndexBytes, static_cast<std::uint32_t>(end / kGroupAlignment));
    }
    return end;
}

std::optional<ExactFault> decode_exact(const Kernels& kernels, const PlaneLayout& layout, ConstByteSpan coded,
                                       const MutableTensorView& dst) noexcept {
    const TensorSpec& spec = layout.spec();
    const ExactDecodeFn decode_group = kernels.decode_exact[static_cast<std::size_t>(spec.dtype)];
    alignas(64) std::byte values[kMaxGroupBytes];
    alignas(64) std::byte reference[kMaxGroupBytes];
    alignas(64) std::byte bits[kMaxGroupBytes + kExactSlack] = {};
    const std::byte* index = coded.data() + layout.exact_index().offset;
    const std::byte* payload = coded.data() + layout.exact_payload().offset;
    std::size_t begin = 0;
    for (std::size_t g = 0; g < layout.groups(); ++g) {
        const Group group = group_at(layout, g);
        const std::size_t end = std::size_t{load<std::uint32_t>(index + g * kIndexBytes)} * kGroupAlignment;
        if (end < begin) return ExactFault{g, "ends before it begins"};
        const std::size_t bytes = end - begin;
        if (bytes > group.raw_bytes) return ExactFault{g, "is longer than its values"};
        // The index so never leads behind the payload: no group is longer than what the layout keeps for it.
        const bool raw = bytes == group.raw_bytes;
        const std::byte* packed = raw ? payload + begin : values;
        if (!raw) {
            reconstruct(kernels, layout, coded.data(), group, reference);
            std::memcpy(bits, payload + begin, bytes);
            const Run<std::byte> to = writable(dst, group, spec.dtype, values);
            const bool good = decode_group({.src = bits,
                                            .src_bytes = bytes,
                                            .reference = reference,
                                            .scales = coded.data() + layout.scales().offset + 2 * group.first,
                                            .vectors = group.vectors,
                                            .head_dim = spec.head_dim,
                                            .dst = to.data,
                                            .dst_step = to.step});
            if (!good) return ExactFault{g, "holds bits that no encoder writes"};
            if (to.data != values) packed = nullptr;
        }
        if (packed != nullptr)
            for_each_run(dst, group.first, group.vectors, [&](const Run<std::byte>& run) {
                write_values(packed + (run.first - group.first) * spec.head_dim * 2, spec.dtype, spec.head_dim, run,
                             dst.dtype);
            });
        begin = end;
    }
    return std::nullopt;
}

}  // namespace lynx::codec
