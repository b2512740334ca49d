// Tensors of any strides as runs of vectors a constant step apart, and the copies that make a vector's
// elements adjacent where they are not. Kernels see adjacent elements only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "lynx/tensor_view.hpp"

namespace lynx::codec {

/// `vectors` head vectors of a view; `first` is the first one's index in the coded tensor.
template <class Byte>
struct Run {
    Byte* data;
    std::ptrdiff_t step;     ///< bytes from one vector to the next
    std::ptrdiff_t element;  ///< bytes from one element to the next
    std::size_t vectors;
    std::size_t first;

    [[nodiscard]] Run sub(std::size_t begin, std::size_t count) const noexcept {
        return {data + static_cast<std::ptrdiff_t>(begin) * step, step, element, count, first + begin};
    }
};

/// Calls use(Run) for `count` vectors of the view from `first` on, in the order of the coded tensor: once if one step
/// leads through them, else once a head.
template <class Byte, class Use>
void for_each_run(const BasicTensorView<Byte>& view, std::size_t first, std::size_t count, Use&& use) {
    if (count == 0) return;
    const auto size = static_cast<std::ptrdiff_t>(size_of(view.dtype));
    const auto heads = static_cast<std::size_t>(view.heads());
    const auto tokens = static_cast<std::size_t>(view.tokens());
    const std::ptrdiff_t element = view.strides[2] * size;
    const bool one_step = heads == 1 || tokens == 1 || view.strides[0] == view.tokens() * view.strides[1];
    // The stride of an axis of one element means nothing and can be any number: it must not be multiplied.
    const std::ptrdiff_t step = heads * tokens < 2 ? 0 : view.strides[tokens == 1 ? 0 : 1] * size;
    for (const std::size_t end = first + count; first < end;) {
        const std::size_t head = first / tokens;
        const std::size_t token = first % tokens;
        const std::size_t vectors = one_step ? end - first : std::min(end - first, tokens - token);
        use(Run<Byte>{view.vector(static_cast<std::int64_t>(head), static_cast<std::int64_t>(token)), step, element,
                      vectors, first});
        first += vectors;
    }
}

namespace detail {

// dst[v][i] = src[v][i] for strides in bytes; the axis with the smaller step in the strided memory is inner,
// so that a transposed tensor is walked along its cache lines.
template <std::size_t kSize>
void copy_elements(const std::byte* src, std::ptrdiff_t src_step, std::ptrdiff_t src_element, std::byte* dst,
                   std::ptrdiff_t dst_step, std::ptrdiff_t dst_element, std::size_t vectors, std::size_t count,
                   bool vectors_inner) noexcept {
    const auto at = [](std::size_t v, std::ptrdiff_t step, std::size_t i, std::ptrdiff_t element) {
        return static_cast<std::ptrdiff_t>(v) * step + static_cast<std::ptrdiff_t>(i) * element;
    };
    const auto copy = [&](std::size_t v, std::size_t i) {
        std::memcpy(dst + at(v, dst_step, i, dst_element), src + at(v, src_step, i, src_element), kSize);
    };
    if (vectors_inner) {
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t v = 0; v < vectors; ++v) copy(v, i);
    } else {
        for (std::size_t v = 0; v < vectors; ++v)
            for (std::size_t i = 0; i < count; ++i) copy(v, i);
    }
}

template <class Byte>
[[nodiscard]] bool vectors_inner(const Run<Byte>& run) noexcept {
    return std::abs(run.step) < std::abs(run.element);
}

}  // namespace detail

/// The run's vectors, `count` elements of `size` bytes each, packed one behind the other into `packed`.
inline void gather(const Run<const std::byte>& run, std::size_t count, std::size_t size, std::byte* packed) noexcept {
    const auto element = static_cast<std::ptrdiff_t>(size);
    const auto step = static_cast<std::ptrdiff_t>(count * size);
    if (run.element == element && run.step == step) {
        std::memcpy(packed, run.data, run.vectors * count * size);
    } else if (run.element == element) {
        for (std::size_t v = 0; v < run.vectors; ++v)
            std::memcpy(packed + v * count * size, run.sub(v, 1).data, count * size);
    } else {
        const auto copy = size == 4 ? detail::copy_elements<4> : detail::copy_elements<2>;
        copy(run.data, run.step, run.element, packed, step, element, run.vectors, count, detail::vectors_inner(run));
    }
}

/// The reverse.
inline void scatter(const std::byte* packed, std::size_t count, std::size_t size, const Run<std::byte>& run) noexcept {
    const auto element = static_cast<std::ptrdiff_t>(size);
    const auto step = static_cast<std::ptrdiff_t>(count * size);
    if (run.element == element && run.step == step) {
        std::memcpy(run.data, packed, run.vectors * count * size);
    } else if (run.element == element) {
        for (std::size_t v = 0; v < run.vectors; ++v)
            std::memcpy(run.sub(v, 1).data, packed + v * count * size, count * size);
    } else {
        const auto copy = size == 4 ? detail::copy_elements<4> : detail::copy_elements<2>;
        copy(packed, step, element, run.data, run.step, run.element, run.vectors, count, detail::vectors_inner(run));
    }
}

/// Stack memory for a batch of packed vectors. Holds at least four of the largest.
inline constexpr std::size_t kPackBytes = 16384;

/// Calls use(Run) for the run in pieces whose packed form, `bytes_each` a vector, fits kPackBytes.
template <class Byte, class Use>
void in_packs(const Run<Byte>& run, std::size_t bytes_each, Use&& use) {
    const std::size_t most = kPackBytes / bytes_each;
    for (std::size_t done = 0; done < run.vectors; done += most) use(run.sub(done, std::min(most, run.vectors - done)));
}

}  // namespace lynx::codec
