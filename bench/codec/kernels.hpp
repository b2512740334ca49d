// What is timed: one entry a kernel. A further kernel is one more entry of kernels().
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "arrays.hpp"
#include "lynx/codec.hpp"

namespace lynx::bench {

/// One kernel on one tensor.
struct Call {
    const Codec& codec;
    const PlaneLayout& layout;
    TensorView source;
    MutableTensorView destination;
    ByteSpan coded;
};

struct Kernel {
    std::string_view name;
    void (*run)(const Call&);
    bool reads_coded = false;               ///< `coded` has to hold the coded source beforehand
    bool exact = false;                     ///< on a layout with an exact tier, which fp32 has not
    bool any_dtype = false;                 ///< worth timing for fp16 and fp32, too
    void (*before)(const Call&) = nullptr;  ///< not timed, before each run
    void (*beside)(const Call&) = nullptr;  ///< timed in the same alternation, to compare run with
};

[[nodiscard]] std::span<const Kernel> kernels() noexcept;

}  // namespace lynx::bench
