// Tensors of any bits and strides, encoded; and the seeds of the codec's targets.
#include "fuzz/codecs.hpp"
#include "fuzz/targets.hpp"
#include "fuzz/tensors.hpp"

namespace lynx::fuzz {
namespace {

struct Coded {
    std::vector<std::byte> bytes;  // without what the exact payload leaves over
    std::size_t nonfinite_vectors = 0;
};

[[nodiscard]] Coded coded_by(const Codec& codec, const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                             std::byte before) {
    std::fill(coded.begin(), coded.end(), before);
    Coded out;
    out.nonfinite_vectors = codec.encode(src, layout, coded).nonfinite_vectors;
    std::size_t used = layout.exact_index().offset;
    if (layout.spec().coding == Coding::kRaw) used = layout.bytes();
    for (std::size_t i = used; i < coded.size(); ++i) require(coded[i] == before, "encode writes behind the planes");
    if (layout.has_exact() && src.dtype == layout.spec().dtype)
        used = layout.exact_payload().offset + codec.encode_exact(src, layout, coded);
    out.bytes.assign(coded.begin(), coded.begin() + static_cast<std::ptrdiff_t>(used));
    return out;
}

/// Every scale is a number that is not negative, every zero one that is not -0.
void check_scales(const PlaneLayout& layout, ConstByteSpan coded) {
    if (layout.spec().coding == Coding::kRaw) return;
    require(all_specified_for_exact(layout, coded), "a scale or zero is not finite, or a scale is negative");
    for (std::size_t v = 0; v < layout.vectors(); ++v) {
        std::uint16_t zero = 0;
        std::memcpy(&zero, coded.data() + layout.zeros().offset + 2 * v, sizeof zero);
        require(zero != 0x8000u, "a zero is -0");
    }
}

void encode_refused(Input& in, const Codec& codec, TensorView src, const PlaneLayout& layout, ByteSpan coded) {
    std::unique_ptr<ExactBytes> other;
    switch (in.between(0, 2)) {
        case 0: src.dtype = static_cast<DType>(in.between(3, 255)); break;
        case 1:
            other = std::make_unique<ExactBytes>(in, in.one_in(2) ? coded.size() + 1 : coded.size() / 2);
            coded = other->span();
            if (coded.size() == layout.bytes()) return;
            break;
        default: {
            std::int64_t& extent = src.shape[in.between(0, 2)];
            const auto changed = in.take<std::int64_t>();
            if (changed == extent) return;
            extent = changed;
        }
    }
    require_refused("a wrong argument", [&] { codec.encode(src, layout, coded); });
    require_refused("a wrong argument", [&] { (void)codec.encode_exact(src, layout, coded); });
}

}  // namespace

void encode(ConstByteSpan input) {
    Input in(input);
    TensorSpec spec = small_spec(in);
    spec.coding = in.one_in(8) ? Coding::kRaw : Coding::kPlanes;
    spec.exact = spec.dtype != DType::kF32 && in.one_in(2);
    const PlaneLayout layout(spec);
    const bool other_type = spec.coding == Coding::kPlanes && in.one_in(4);
    const DType type = other_type ? static_cast<DType>(in.between(0, 2)) : spec.dtype;
    const bool mistaken = in.one_in(16);
    StridedTensor src(in, spec, type);
    const ExactBytes coded(in, layout.bytes());
    Input mistake = in;
    Elements elements = any_elements(in, spec, type);
    src.set(elements);

    const MutableTensorView adjacent = view_of(elements, spec, type);
    const TensorView adjacent_src{adjacent.data, type, adjacent.shape, adjacent.strides};
    const Coded expected = coded_by(Codec::by_name("scalar"), adjacent_src, layout, coded.span(), std::byte{0});
    check_scales(layout, coded.span());
    for_each_codec([&](const Codec& codec) {
        if (mistaken) return encode_refused(mistake, codec, src.const_view(), layout, coded.span());
        const Coded got = coded_by(codec, src.const_view(), layout, coded.span(), std::byte{0xa5});
        require(got.nonfinite_vectors == expected.nonfinite_vectors,
                std::string(codec.name()) + " encode counts other vectors that are not finite");
        require(got.bytes == expected.bytes, std::string(codec.name()) + " encode gives other bytes");
    });
}

std::vector<std::vector<std::byte>> codec_seeds() {
    std::vector<std::vector<std::byte>> seeds;
    Input in({});
    for (const std::size_t bytes : {32u, 64u, 256u, 1024u, 4096u})
        for (int i = 0; i < 8; ++i) in.fill(seeds.emplace_back(bytes));
    return seeds;
}

}  // namespace lynx::fuzz
