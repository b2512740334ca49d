#include "codec/exact.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "codec/convert.hpp"
#include "codec/pieces.hpp"
#include "codec/raw.hpp"
#include "codec/strided.hpp"

namespace lynx::codec {
namespace {

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

std::size_t end_of(const PlaneLayout& layout, ConstByteSpan coded, std::size_t group) noexcept {
    const std::byte* at = coded.data() + layout.exact_index().offset + group * sizeof(std::uint32_t);
    return std::size_t{load<std::uint32_t>(at)} * kGroupAlignment;
}

void set_end(const PlaneLayout& layout, ByteSpan coded, std::size_t group, std::size_t end) noexcept {
    std::byte* at = coded.data() + layout.exact_index().offset + group * sizeof(std::uint32_t);
    store(at, static_cast<std::uint32_t>(end / kGroupAlignment));
}

/// Where the next group begins in plane 0. (The last one has none, and nothing is read there.)
const std::byte* planes_behind(const PlaneLayout& layout, const std::byte* coded, const Group& group) noexcept {
    return coded + layout.plane(0).offset + (group.first + group.vectors) * (layout.spec().head_dim / 8);
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

/// Codes the groups of a piece one behind the other from `payload` on; their ends are counted from there.
void encode_groups(const Kernels& kernels, const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                   const Piece& groups, std::byte* payload) noexcept {
    const TensorSpec& spec = layout.spec();
    alignas(64) std::byte gathered[kMaxGroupBytes];
    alignas(64) std::byte reference[kMaxGroupBytes];
    alignas(64) std::byte bits[kMaxGroupBytes + kExactSlack];
    std::size_t end = 0;
    for (std::size_t g = groups.first; g < groups.first + groups.count; ++g) {
        const Group group = group_at(layout, g);
        reconstruct(kernels, layout, coded.data(), group, reference);
        const Run<const std::byte> run = adjacent(src, group, gathered);
        const std::size_t bytes = kernels.encode_exact[static_cast<std::size_t>(spec.dtype)](
            {.src = run.data,
             .src_step = run.step,
             .reference = reference,
             .scales = coded.data() + layout.scales().offset + 2 * group.first,
             .vectors = group.vectors,
             .head_dim = spec.head_dim,
             .ahead = static_cast<std::ptrdiff_t>(group.vectors) * run.step,
             .planes_ahead = planes_behind(layout, coded.data(), group),
             .plane_step = layout.plane(0).bytes,
             .dst = bits,
             .limit = group.raw_bytes});
        if (bytes < group.raw_bytes)
            std::memcpy(payload + end, bits, bytes);
        else
            gather(run, spec.head_dim, 2, payload + end);
        end += bytes;
        set_end(layout, coded, g, end);
    }
}

std::optional<ExactFault> decode_group(const Kernels& kernels, const PlaneLayout& layout, ConstByteSpan coded,
                                       std::size_t index, const MutableTensorView& dst) noexcept {
    const TensorSpec& spec = layout.spec();
    const Group group = group_at(layout, index);
    const std::size_t begin = index == 0 ? 0 : end_of(layout, coded, index - 1);
    const std::size_t end = end_of(layout, coded, index);
    // No group takes more than its values, so that none begins behind what those before it can take. Where this one
    // does, one before it is at fault, and is found by whoever decodes that.
    if (begin > group.first * spec.head_dim * 2) return ExactFault::kTooLong;
    if (end < begin) return ExactFault::kEndsTooEarly;
    const std::size_t bytes = end - begin;
    if (bytes > group.raw_bytes) return ExactFault::kTooLong;

    const std::byte* payload = coded.data() + layout.exact_payload().offset + begin;
    alignas(64) std::byte values[kMaxGroupBytes];
    const Run<std::byte> to = writable(dst, group, spec.dtype, values);
    if (bytes < group.raw_bytes) {
        alignas(64) std::byte reference[kMaxGroupBytes];
        alignas(64) std::byte bits[kMaxGroupBytes + kExactSlack];
        reconstruct(kernels, layout, coded.data(), group, reference);
        std::memcpy(bits, payload, bytes);
        std::memset(bits + bytes, 0, kExactSlack);
        const bool good = kernels.decode_exact[static_cast<std::size_t>(spec.dtype)](
            {.src = bits,
             .src_bytes = bytes,
             .reference = reference,
             .scales = coded.data() + layout.scales().offset + 2 * group.first,
             .vectors = group.vectors,
             .head_dim = spec.head_dim,
             .ahead = static_cast<std::ptrdiff_t>(group.vectors) * to.step,
             .planes_ahead = planes_behind(layout, coded.data(), group),
             .plane_step = layout.plane(0).bytes,
             .dst = to.data,
             .dst_step = to.step});
        if (!good) return ExactFault::kBadBits;
        if (to.data != values) return std::nullopt;
        payload = values;
    }
    for_each_run(dst, group.first, group.vectors, [&](const Run<std::byte>& run) {
        write_values(payload + (run.first - group.first) * spec.head_dim * 2, spec.dtype, spec.head_dim, run,
                     dst.dtype);
    });
    return std::nullopt;
}

}  // namespace

std::size_t encode_exact(const Kernels& kernels, const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                         Executor* executor) {
    const std::size_t group_bytes = layout.group_vectors() * layout.spec().head_dim * 2;
    std::byte* payload = coded.data() + layout.exact_payload().offset;
    // Each piece first lies where it would if all before it were as long as can be.
    for_each_piece(executor, layout.groups(), group_bytes, [&](const Piece& groups) noexcept {
        encode_groups(kernels, src, layout, coded, groups, payload + groups.first * group_bytes);
    });
    const std::size_t each = executor == nullptr ? layout.groups() : piece_vectors(group_bytes);
    std::size_t end = 0;
    for (std::size_t first = 0; first < layout.groups(); first += each) {
        const std::size_t behind = std::min(first + each, layout.groups());
        const std::size_t bytes = end_of(layout, coded, behind - 1);
        std::memmove(payload + end, payload + first * group_bytes, bytes);
        for (std::size_t g = first; g < behind; ++g) set_end(layout, coded, g, end + end_of(layout, coded, g));
        end += bytes;
    }
    return end;
}

std::optional<FaultyGroup> decode_exact(const Kernels& kernels, const PlaneLayout& layout, ConstByteSpan coded,
                                        const MutableTensorView& dst, Executor* executor) {
    const std::size_t group_bytes = layout.group_vectors() * layout.spec().head_dim * 2;
    // Of several faulty groups the first one, whatever the threads do: group and fault as one number.
    constexpr std::size_t kNone = SIZE_MAX;
    std::atomic<std::size_t> first_fault{kNone};
    for_each_piece(executor, layout.groups(), group_bytes, [&](const Piece& groups) noexcept {
        for (std::size_t g = groups.first; g < groups.first + groups.count; ++g) {
            const std::optional<ExactFault> fault = decode_group(kernels, layout, coded, g, dst);
            if (!fault) continue;
            const std::size_t found = g * kExactFaults + static_cast<std::size_t>(*fault);
            std::size_t seen = first_fault.load();
            while (found < seen && !first_fault.compare_exchange_weak(seen, found)) {
            }
            return;
        }
    });
    const std::size_t fault = first_fault.load();
    if (fault == kNone) return std::nullopt;
    return FaultyGroup{fault / kExactFaults, static_cast<ExactFault>(fault % kExactFaults)};
}

}  // namespace lynx::codec
