#include "fuzz/tensors.hpp"

namespace lynx::fuzz {
namespace {

constexpr std::uint32_t kFewElements = 1536;
constexpr std::uint32_t kManyElements = 12288;  // three groups of the exact tier, and more
constexpr std::byte kUntouched{0xcd};

[[nodiscard]] std::uint16_t load_u16(const std::byte* from) noexcept {
    std::uint16_t value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <std::ptrdiff_t kSize>
void copy_elements(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
                   std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i, from += from_step * kSize, to += to_step * kSize)
        std::memcpy(to, from, kSize);
}

/// One vector's elements; steps count elements.
void copy_vector(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step, std::size_t count,
                 std::size_t size) noexcept {
    if (from_step == 1 && to_step == 1)
        std::memcpy(to, from, count * size);
    else if (size == 4)
        copy_elements<4>(from, from_step, to, to_step, count);
    else
        copy_elements<2>(from, from_step, to, to_step, count);
}

// The last byte of an element holds its sign and the upper part of its exponent.
void shape_element(Input& in, unsigned kind, std::byte& last) noexcept {
    const std::uint64_t r = in.random();
    switch (kind) {
        case 1: last &= std::byte{0xbf}; break;                                         // finite: magnitudes below 2
        case 2: last = (last & std::byte{0x80}) | std::byte{0x3f}; break;               // near 1
        case 3: last = r % 8 == 0 ? last : std::byte{0}; break;                         // subnormals and few others
        case 4: last = r % 256 == 0 ? std::byte{0x7f} : last & std::byte{0xbf}; break;  // now and then not finite
        default: break;
    }
}

}  // namespace

TensorSpec small_spec(Input& in) {
    TensorSpec spec;
    spec.dtype = static_cast<DType>(in.between(0, 2));
    spec.head_dim = in.one_in(2) ? in.one_of<std::uint32_t>({64, 128, 96, 256, 80, 576}) : 8 * in.between(1, 128);
    spec.heads = in.one_in(2) ? 1 : in.between(1, 5);
    const std::uint32_t most =
        std::max((in.one_in(8) ? kManyElements : kFewElements) / (spec.heads * spec.head_dim), 1u);
    spec.tokens = std::min(in.between(0, 90), most);
    spec.anchor_bits = static_cast<std::uint8_t>(in.between(1, 8));
    spec.sink_tokens = static_cast<std::uint16_t>(in.one_in(4) ? in.between(0, kMaxSinkTokens) : in.between(0, 9));
    return spec;
}

TensorSpec small_exact_spec(Input& in) {
    TensorSpec spec = small_spec(in);
    spec.dtype = spec.dtype == DType::kF32 ? DType::kBF16 : spec.dtype;
    spec.exact = true;
    return spec;
}

TensorSpec wild_spec(Input& in) {
    TensorSpec spec;
    spec.coding = static_cast<Coding>(in.take());
    spec.dtype = static_cast<DType>(in.take());
    spec.heads = in.take<std::uint32_t>();
    spec.tokens = in.take<std::uint32_t>();
    spec.head_dim = in.take<std::uint32_t>();
    spec.anchor_bits = in.take();
    spec.sink_tokens = in.take<std::uint16_t>();
    spec.exact = in.one_in(2);
    return spec;
}

std::size_t element_bytes(const TensorSpec& spec, DType dtype) noexcept {
    return std::size_t{spec.heads} * spec.tokens * spec.head_dim * size_of(dtype);
}

MutableTensorView view_of(Elements& elements, const TensorSpec& spec, DType dtype) noexcept {
    const std::int64_t head = std::int64_t{spec.tokens} * spec.head_dim;
    return {elements.data(), dtype, {spec.heads, spec.tokens, spec.head_dim}, {head, spec.head_dim, 1}};
}

Elements any_elements(Input& in, const TensorSpec& spec, DType dtype) {
    const std::size_t size = size_of(dtype);
    Elements elements(element_bytes(spec, dtype));
    const unsigned kind = in.between(0, 4);
    // Some of the input is left for what comes after: a tensor would take all of it.
    in.fill(elements, in.rest().size() - in.rest().size() / 8);
    for (std::size_t end = size; end <= elements.size(); end += size) shape_element(in, kind, elements[end - 1]);
    return elements;
}

StridedTensor::StridedTensor(Input& in, const TensorSpec& spec, DType dtype)
    : dtype_(dtype), shape_{spec.heads, spec.tokens, spec.head_dim} {
    constexpr std::array<std::size_t, 3> kOrders[] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    // Half of all tensors are as caches are.
    const bool plain = in.one_in(2);
    const auto& order = kOrders[plain ? in.between(0, 1) : in.between(0, 5)];
    std::int64_t stride = plain ? 1 : in.between(1, 3);
    std::int64_t least = 0;
    std::int64_t most = 0;
    for (std::size_t i = 3; i-- > 0;) {
        const std::size_t axis = order[i];
        if (shape_[axis] <= 1 || spec.tokens == 0) {
            strides_[axis] = in.one_of<std::int64_t>({1, 0, -1, 7, 1 << 20, INT64_MAX, INT64_MIN});
            continue;
        }
        const bool reversed = !plain && in.one_in(4);
        strides_[axis] = reversed ? -stride : stride;
        (reversed ? least : most) += (shape_[axis] - 1) * strides_[axis];
        stride = stride * shape_[axis] + (plain ? 0 : in.between(0, 3));
    }
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    first_ = -least * size;
    memory_ =
        std::make_unique<ExactBytes>(in, spec.tokens == 0 ? 0 : static_cast<std::size_t>((most - least + 1) * size));
    std::fill(memory_->span().begin(), memory_->span().end(), kUntouched);
}

MutableTensorView StridedTensor::view() const noexcept {
    return {memory_->span().data() + first_, dtype_, shape_, strides_};
}

TensorView StridedTensor::const_view() const noexcept {
    return {memory_->span().data() + first_, dtype_, shape_, strides_};
}

template <class Use>
void StridedTensor::for_each_vector(Use&& use) const {
    const auto size = static_cast<std::int64_t>(size_of(dtype_));
    // An axis of one element has a stride of any value: only used when there is a second.
    const auto reach = [&](std::size_t axis, std::int64_t i) { return i == 0 ? 0 : i * strides_[axis]; };
    for (std::int64_t h = 0; h < shape_[0]; ++h)
        for (std::int64_t t = 0; t < shape_[1]; ++t)
            use(memory_->span().data() + first_ + (reach(0, h) + reach(1, t)) * size);
}

void StridedTensor::set(const Elements& elements) {
    const std::size_t size = size_of(dtype_);
    const auto count = static_cast<std::size_t>(shape_[2]);
    const std::byte* from = elements.data();
    for_each_vector([&](std::byte* vector) {
        copy_vector(from, 1, vector, strides_[2], count, size);
        from += count * size;
    });
}

Elements StridedTensor::take() {
    const std::size_t size = size_of(dtype_);
    const auto count = static_cast<std::size_t>(shape_[2]);
    const std::vector<std::byte> untouched(count * size, kUntouched);
    Elements elements(static_cast<std::size_t>(shape_[0] * shape_[1]) * count * size);
    std::byte* to = elements.data();
    for_each_vector([&](std::byte* vector) {
        copy_vector(vector, strides_[2], to, 1, count, size);
        copy_vector(untouched.data(), 1, vector, strides_[2], count, size);
        to += count * size;
    });
    const ByteSpan memory = memory_->span();
    // All bytes are alike if the first is right and each is like the next.
    require(memory.empty() ||
                (memory[0] == kUntouched && std::memcmp(memory.data(), memory.data() + 1, memory.size() - 1) == 0),
            "a byte between the elements was written");
    return elements;
}

bool specified(const PlaneLayout& layout, ConstByteSpan coded, std::size_t vector) {
    if (layout.spec().coding == Coding::kRaw) return true;
    const std::uint16_t scale = load_u16(coded.data() + layout.scales().offset + 2 * vector);
    const std::uint16_t zero = load_u16(coded.data() + layout.zeros().offset + 2 * vector);
    return (scale & 0x7c00u) != 0x7c00u && (zero & 0x7c00u) != 0x7c00u;
}

bool all_specified_for_exact(const PlaneLayout& layout, ConstByteSpan coded) {
    for (std::size_t v = 0; v < layout.vectors(); ++v) {
        const bool negative = (load_u16(coded.data() + layout.scales().offset + 2 * v) & 0x8000u) != 0;
        if (negative || !specified(layout, coded, v)) return false;
    }
    return true;
}

void make_specified(const PlaneLayout& layout, ByteSpan coded) {
    // Without the upper bit of the exponent they are below 2; scales lose their sign as well.
    for (std::size_t v = 0; v < layout.vectors(); ++v) {
        coded[layout.scales().offset + 2 * v + 1] &= std::byte{0x3f};
        coded[layout.zeros().offset + 2 * v + 1] &= std::byte{0xbf};
    }
}

void check_same(const PlaneLayout& layout, ConstByteSpan coded, const Elements& expected, const Elements& got,
                const std::string& what) {
    require(expected.size() == got.size(), what + ": another number of elements");
    if (layout.vectors() == 0) return;
    const std::size_t bytes = expected.size() / layout.vectors();
    for (std::size_t v = 0; v < layout.vectors(); ++v)
        require(!specified(layout, coded, v) ||
                    std::memcmp(expected.data() + v * bytes, got.data() + v * bytes, bytes) == 0,
                what + ": other values in vector " + std::to_string(v));
}

}  // namespace lynx::fuzz
