// Planes of any bytes, decoded.
#include "fuzz/codecs.hpp"
#include "fuzz/targets.hpp"
#include "fuzz/tensors.hpp"

namespace lynx::fuzz {
namespace {

/// Each part of the layout begins where the one before ends, and the last one at the end.
void check_extents(const PlaneLayout& layout) {
    std::size_t at = 0;
    const auto follow = [&at](const Extent& extent, const char* what) {
        require(extent.offset == at, std::string(what) + " does not begin where the one before ends");
        require(extent.end() >= at, std::string(what) + " is so long that its end wraps around");
        at = extent.end();
    };
    follow(layout.scales(), "scales");
    follow(layout.zeros(), "zeros");
    follow(layout.sinks(), "sinks");
    for (unsigned p = 0; p < layout.planes(); ++p) follow(layout.plane(p), "a plane");
    const std::size_t planes_end = at;
    follow(layout.exact_index(), "the exact index");
    follow(layout.exact_payload(), "the exact payload");
    require(at == layout.bytes(), "the layout's bytes are not where its last extent ends");
    require(layout.part(0).offset == 0 && layout.part(0).end() <= planes_end, "the anchor is not in the planes");
}

void decode_any_layout(Input& in) {
    const TensorSpec spec = wild_spec(in);
    std::unique_ptr<PlaneLayout> layout;
    try {
        layout = std::make_unique<PlaneLayout>(spec);
    } catch (const InvalidArgument&) {
        return;
    }
    check_extents(*layout);
    std::byte few[64];
    if (layout->bytes() == sizeof few) return;
    const MutableTensorView dst{few, DType::kBF16, {spec.heads, spec.tokens, spec.head_dim}, {0, 0, 1}};
    for_each_codec([&](const Codec& codec) {
        require_refused("a wrong size", [&] { codec.decode(*layout, few, 1, dst); });
        require_refused("a wrong size", [&] { codec.decode_exact(*layout, few, dst); });
    });
}

/// One argument is wrong.
void decode_refused(Input& in, const Codec& codec, const PlaneLayout& layout, ConstByteSpan coded, unsigned planes,
                    MutableTensorView dst) {
    std::unique_ptr<ExactBytes> other;
    switch (in.between(0, 4)) {
        case 0: planes = in.one_of({0u, layout.planes() + 1, 9u, 255u, UINT32_MAX}); break;
        case 1:
            other = std::make_unique<ExactBytes>(in, in.one_in(2) ? coded.size() + 1 : coded.size() / 2);
            coded = other->span();
            if (coded.size() == layout.bytes()) return;
            break;
        case 2: dst.dtype = static_cast<DType>(in.between(3, 255)); break;
        case 3: {
            std::int64_t& extent = dst.shape[in.between(0, 2)];
            const auto changed = in.one_in(2) ? in.take<std::int64_t>() : extent + in.one_of({-1, 1, 1 << 16});
            if (changed == extent) return;
            extent = changed;
            break;
        }
        default:
            dst.data = nullptr;
            if (layout.vectors() == 0) return codec.decode(layout, coded, planes, dst);
    }
    require_refused("a wrong argument", [&] { codec.decode(layout, coded, planes, dst); });
    if (layout.has_exact() && planes >= 1 && planes <= kPlaneCount)
        require_refused("a wrong argument", [&] { codec.decode_exact(layout, coded, dst); });
}

}  // namespace

void decode(ConstByteSpan input) {
    Input in(input);
    if (in.one_in(8)) return decode_any_layout(in);
    TensorSpec spec = small_spec(in);
    spec.coding = in.one_in(4) ? Coding::kRaw : Coding::kPlanes;
    spec.exact = spec.dtype != DType::kF32 && in.one_in(4);
    const PlaneLayout layout(spec);
    check_extents(layout);
    const auto type = static_cast<DType>(in.between(0, 2));
    const unsigned planes = in.between(1, layout.planes());
    const bool mistaken = in.one_in(16);
    const bool make_numbers = in.one_in(2);
    StridedTensor dst(in, spec, type);
    const ExactBytes coded(in, layout.bytes());
    Input mistake = in;
    in.fill(coded.span());
    if (make_numbers && spec.coding == Coding::kPlanes) make_specified(layout, coded.span());

    Elements expected(element_bytes(spec, type));
    Codec::by_name("scalar").decode(layout, coded.span(), planes, view_of(expected, spec, type));
    for_each_codec([&](const Codec& codec) {
        if (mistaken) return decode_refused(mistake, codec, layout, coded.span(), planes, dst.view());
        codec.decode(layout, coded.span(), planes, dst.view());
        check_same(layout, coded.span(), expected, dst.take(), std::string(codec.name()) + " decode");
    });
}

}  // namespace lynx::fuzz
