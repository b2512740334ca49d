// Tensors as the fuzzer chooses them, in heap memory of exactly the size that they take: the address sanitizer sees
// any access outside, and the gaps between strided elements are watched here.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "fuzz/input.hpp"
#include "lynx/codec.hpp"

namespace lynx::fuzz {

/// `bytes` of heap memory that end where the allocation ends, at any alignment.
class ExactBytes {
   public:
    ExactBytes(Input& in, std::size_t bytes)
        : lead_(in.between(0, 63)), bytes_(bytes), memory_(new std::byte[lead_ + bytes]) {}

    [[nodiscard]] ByteSpan span() const noexcept { return {memory_.get() + lead_, bytes_}; }

   private:
    std::size_t lead_;
    std::size_t bytes_;
    std::unique_ptr<std::byte[]> memory_;
};

/// A valid spec of a tensor small enough for thousands of runs a second.
[[nodiscard]] TensorSpec small_spec(Input& in);
/// The same with an exact tier.
[[nodiscard]] TensorSpec small_exact_spec(Input& in);
/// A spec of any field values.
[[nodiscard]] TensorSpec wild_spec(Input& in);

/// The logical elements of a tensor, head-major and adjacent.
using Elements = std::vector<std::byte>;

/// A view of them.
[[nodiscard]] MutableTensorView view_of(Elements& elements, const TensorSpec& spec, DType dtype) noexcept;
[[nodiscard]] std::size_t element_bytes(const TensorSpec& spec, DType dtype) noexcept;

/// Element bits of many kinds: any at all, finite ones, ones near to each other, mostly zeros.
[[nodiscard]] Elements any_elements(Input& in, const TensorSpec& spec, DType dtype);

/// A tensor of the spec's shape in strides of the fuzzer's choice: axes in any order, padded, reversed; any number at
/// all for an axis of one element, where it means nothing.
class StridedTensor {
   public:
    StridedTensor(Input& in, const TensorSpec& spec, DType dtype);

    [[nodiscard]] MutableTensorView view() const noexcept;
    [[nodiscard]] TensorView const_view() const noexcept;
    void set(const Elements& elements);
    /// The elements; and leaves the memory as new. Throws Finding if bytes between the elements were written since
    /// then.
    [[nodiscard]] Elements take();

   private:
    template <class Use>
    void for_each_vector(Use&& use) const;

    DType dtype_;
    std::array<std::int64_t, 3> shape_;
    std::array<std::int64_t, 3> strides_{};
    std::ptrdiff_t first_ = 0;  // bytes from the memory's begin to element [0, 0, 0]
    std::unique_ptr<ExactBytes> memory_;
};

/// Does the format give a meaning to the scale and zero of this vector? To numbers it does; to a negative scale in the
/// planes, but not in the exact tier.
[[nodiscard]] bool specified(const PlaneLayout& layout, ConstByteSpan coded, std::size_t vector);
[[nodiscard]] bool all_specified_for_exact(const PlaneLayout& layout, ConstByteSpan coded);
/// Makes all of them such.
void make_specified(const PlaneLayout& layout, ByteSpan coded);

/// Throws Finding, naming the first vector that differs, if two decoded tensors differ where the format specifies.
void check_same(const PlaneLayout& layout, ConstByteSpan coded, const Elements& expected, const Elements& got,
                const std::string& what);

}  // namespace lynx::fuzz
