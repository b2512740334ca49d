// The exact tier of any bytes, and of tensors whose coded bytes were damaged, decoded.
#include <optional>

#include "fuzz/codecs.hpp"
#include "fuzz/targets.hpp"
#include "fuzz/tensors.hpp"
#include "lynx/executor.hpp"

namespace lynx::fuzz {
namespace {

void store_end(const PlaneLayout& layout, ByteSpan coded, std::size_t group, std::uint32_t end) {
    std::memcpy(coded.data() + layout.exact_index().offset + 4 * group, &end, sizeof end);
}

[[nodiscard]] std::uint32_t load_end(const PlaneLayout& layout, ConstByteSpan coded, std::size_t group) {
    std::uint32_t end = 0;
    std::memcpy(&end, coded.data() + layout.exact_index().offset + 4 * group, sizeof end);
    return end;
}

/// An index that never falls and has no group longer than its values, or hardly ever.
void make_index_plausible(Input& in, const PlaneLayout& layout, ByteSpan coded) {
    const auto values_end = static_cast<std::uint32_t>(layout.group_vectors() * layout.spec().head_dim * 2 / 8);
    std::uint32_t end = 0;
    for (std::size_t g = 0; g < layout.groups(); ++g) {
        const std::uint64_t r = in.random();
        if (r % 256 == 1) end -= values_end;
        end += r % 4 == 0 ? values_end + (r % 256 == 0 ? 1 : 0) : static_cast<std::uint32_t>((r >> 8) % values_end);
        store_end(layout, coded, g, end);
    }
}

/// Is there a group that begins behind its end, or is longer than its values?
[[nodiscard]] bool index_is_wrong(const PlaneLayout& layout, ConstByteSpan coded) {
    const std::size_t row_bytes = std::size_t{layout.spec().head_dim} * 2;
    std::uint64_t begin = 0;
    for (std::size_t g = 0; g < layout.groups(); ++g) {
        const std::size_t vectors = std::min(layout.group_vectors(), layout.vectors() - g * layout.group_vectors());
        const std::uint64_t end = std::uint64_t{8} * load_end(layout, coded, g);
        if (end < begin || end - begin > vectors * row_bytes) return true;
        begin = end;
    }
    return false;
}

/// The values, or nothing if the bytes are corrupt.
[[nodiscard]] std::optional<Elements> decoded(const Codec& codec, const PlaneLayout& layout, ConstByteSpan coded,
                                              StridedTensor& dst, Executor* executor = nullptr) {
    try {
        codec.decode_exact(layout, coded, dst.view(), executor);
    } catch (const CorruptData&) {
        (void)dst.take();
        return std::nullopt;
    }
    return dst.take();
}

/// No codec reads by a wrong index, and all come to the same end where the format says to which.
void decode_by_all(const PlaneLayout& layout, ConstByteSpan coded, StridedTensor& dst) {
    const bool same = all_specified_for_exact(layout, coded);
    const bool wrong_index = index_is_wrong(layout, coded);
    std::optional<Elements> expected;
    for_each_codec([&](const Codec& codec) {
        const std::optional<Elements> got = decoded(codec, layout, coded, dst);
        if (codec.name() == "scalar") expected = got;
        require(!wrong_index || !got, std::string(codec.name()) + " decode_exact: takes a wrong index");
        require(!same || got.has_value() == expected.has_value(),
                std::string(codec.name()) + " decode_exact: not of one mind with scalar whether the bytes are corrupt");
        if (same && got) check_same(layout, coded, *expected, *got, std::string(codec.name()) + " decode_exact");
    });
}

void damage(Input& in, const PlaneLayout& layout, ByteSpan coded, std::size_t used) {
    const std::size_t index = layout.exact_index().offset;
    for (std::uint32_t n = in.between(1, 4); n > 0; --n) {
        const auto group = static_cast<std::size_t>(in.take<std::uint16_t>() % layout.groups());
        const std::size_t place = in.take<std::uint32_t>();
        const unsigned bits = in.take();
        switch (in.between(0, 3)) {
            case 0: coded[place % used] ^= static_cast<std::byte>(bits); break;
            case 1: coded[index + place % (used - index)] ^= static_cast<std::byte>(1u << (bits % 8)); break;
            case 2: store_end(layout, coded, group, load_end(layout, coded, group) + bits % 7 - 3); break;
            default: store_end(layout, coded, group, static_cast<std::uint32_t>(place));
        }
    }
}

/// Tasks on the caller's thread, the last one first.
class Backwards final : public Executor {
   public:
    void run(std::size_t tasks, Task task) override {
        while (tasks > 0) task(--tasks);
    }
};

/// A tensor so large that an executor gets it in pieces, which do not begin where the index was checked up to: groups
/// of values as they are, with some entries of the index changed.
void decode_pieces(Input& in) {
    const TensorSpec spec{.dtype = in.one_in(2) ? DType::kBF16 : DType::kF16,
                          .heads = 1,
                          .tokens = 16384 + in.between(1, 4000),
                          .head_dim = 8,
                          .exact = true};
    const PlaneLayout layout(spec);
    const ExactBytes coded(in, layout.bytes());
    StridedTensor dst(in, spec, spec.dtype);
    in.fill(coded.span(), 0);
    make_specified(layout, coded.span());
    const std::size_t group_bytes = layout.group_vectors() * spec.head_dim * 2;
    for (std::size_t g = 0; g < layout.groups(); ++g)
        store_end(layout, coded.span(), g,
                  static_cast<std::uint32_t>(std::min((g + 1) * group_bytes, layout.exact_payload().bytes) / 8));
    for (std::uint32_t n = in.between(0, 4); n > 0; --n) {
        // One or several groups on, so that they fit each other but not what lies before them; most in the last piece.
        const std::size_t from_end = in.one_in(4) ? in.take<std::uint16_t>() : in.take();
        const std::size_t first = layout.groups() - 1 - from_end % layout.groups();
        const std::size_t behind = in.one_in(2) ? first + 1 : layout.groups();
        const std::uint32_t by = in.one_in(2) ? in.take<std::uint32_t>() : in.between(0, 255) - 128;
        for (std::size_t g = first; g < behind; ++g)
            store_end(layout, coded.span(), g, load_end(layout, coded.span(), g) + by);
    }
    for_each_codec([&](const Codec& codec) {
        Backwards executor;
        const std::optional<Elements> whole = decoded(codec, layout, coded.span(), dst);
        const std::optional<Elements> pieces = decoded(codec, layout, coded.span(), dst, &executor);
        require(whole == pieces, std::string(codec.name()) + " decode_exact: an executor makes a difference");
        require(!whole || !index_is_wrong(layout, coded.span()), "decode_exact: takes a wrong index");
    });
}

/// Undamaged, every codec restores every bit, and converts what it restores as raw bits are converted.
void check_restored(Input& in, const TensorSpec& spec, const PlaneLayout& layout, ConstByteSpan coded,
                    const Elements& elements) {
    StridedTensor same(in, spec, spec.dtype);
    StridedTensor wide(in, spec, DType::kF32);
    TensorSpec raw = spec;
    raw.coding = Coding::kRaw;
    Elements widened(element_bytes(spec, DType::kF32));
    const Codec& scalar = Codec::by_name("scalar");
    scalar.decode(PlaneLayout(raw), elements, 1, view_of(widened, spec, DType::kF32));
    for_each_codec([&](const Codec& codec) {
        const std::string name(codec.name());
        require(decoded(codec, layout, coded, same) == elements, name + " decode_exact does not restore every bit");
        require(decoded(codec, layout, coded, wide) == widened, name + " decode_exact does not widen what it restores");
    });
}

}  // namespace

void decode_exact(ConstByteSpan input) {
    Input in(input);
    if (in.one_in(32)) return decode_pieces(in);
    const TensorSpec spec = small_exact_spec(in);
    const PlaneLayout layout(spec);
    const ExactBytes coded(in, layout.bytes());
    StridedTensor dst(in, spec, in.one_in(4) ? static_cast<DType>(in.between(0, 2)) : spec.dtype);
    const bool plausible = !in.one_in(8);
    const bool make_numbers = !in.one_in(4);
    const bool empty_payload = in.one_in(8);
    in.fill(coded.span());
    const Extent payload = layout.exact_payload();
    // Zeros are the shortest code of all: groups that are read to their end.
    if (empty_payload)
        std::fill_n(coded.span().begin() + static_cast<std::ptrdiff_t>(payload.offset), payload.bytes, std::byte{0});
    if (make_numbers) make_specified(layout, coded.span());
    if (plausible) make_index_plausible(in, layout, coded.span());
    decode_by_all(layout, coded.span(), dst);
}

void damaged_exact(ConstByteSpan input) {
    Input in(input);
    const TensorSpec spec = small_exact_spec(in);
    const PlaneLayout layout(spec);
    const ExactBytes coded(in, layout.bytes());
    const bool damaged = !in.one_in(4);
    Elements elements = any_elements(in, spec, spec.dtype);
    const Codec& encoder = Codec::by_name(Codec::available()[in.between(0, 255) % Codec::available().size()]);
    const TensorView src{elements.data(), spec.dtype, view_of(elements, spec, spec.dtype).shape,
                         view_of(elements, spec, spec.dtype).strides};
    in.fill(coded.span(), 0);
    encoder.encode(src, layout, coded.span());
    const std::size_t payload = encoder.encode_exact(src, layout, coded.span());
    require(payload <= layout.exact_payload().bytes, "encode_exact takes more than there is");
    if (!damaged || spec.tokens == 0) return check_restored(in, spec, layout, coded.span(), elements);
    damage(in, layout, coded.span(), layout.exact_payload().offset + payload);
    StridedTensor dst(in, spec, spec.dtype);
    decode_by_all(layout, coded.span(), dst);
}

}  // namespace lynx::fuzz
