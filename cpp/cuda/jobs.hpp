// What a kernel is told: plain values that are passed by copy. All pointers are the device's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx::cuda {

/// A tensor whose vectors' elements are adjacent; steps in bytes.
template <class Byte>
struct Tensor {
    Byte* data = nullptr;
    std::int64_t head_step = 0;
    std::int64_t token_step = 0;
    unsigned alignment = 1;  ///< of all vectors: a power of two, the element's size or more
};

/// Where the planes of a coded tensor lie.
template <class Byte>
struct Planes {
    std::uint32_t heads = 0;
    std::uint32_t tokens = 0;
    Byte* scales = nullptr;
    Byte* zeros = nullptr;
    Byte* planes = nullptr;
    Byte* sinks = nullptr;
    std::size_t plane_step = 0;     ///< bytes from one plane to the next
    std::uint32_t sink_tokens = 0;  ///< 0 also where the sinks are not to be looked at
    unsigned anchor_bits = 0;
};

struct EncodeJob {
    Tensor<const std::byte> src;
    Planes<std::byte> coded;
    std::uint64_t* nonfinite_vectors = nullptr;  ///< added to, if there
};

struct DecodeJob {
    Planes<const std::byte> coded;
    unsigned plane_count = 0;
    Tensor<std::byte> dst;
};

/// Between a tensor and its raw coding, which is vector behind vector.
struct RawJob {
    std::uint32_t heads = 0;
    std::uint32_t tokens = 0;
    Tensor<const std::byte> src;
    Tensor<std::byte> dst;
};

/// The groups of the exact tier.
struct Groups {
    std::uint32_t vectors = 0;        ///< of the whole tensor
    std::uint32_t group_vectors = 0;  ///< of a group but the last
    std::uint32_t count = 0;
};

struct ExactEncodeJob {
    Tensor<const std::byte> src;
    Planes<const std::byte> coded;
    Groups groups;
    std::byte* index = nullptr;
    std::byte* payload = nullptr;
    unsigned payload_alignment = 1;
    std::uint32_t* tile_ends = nullptr;  ///< the workspace: one for each tile of groups
};

struct ExactDecodeJob {
    Planes<const std::byte> coded;
    Groups groups;
    const std::byte* index = nullptr;
    const std::byte* payload = nullptr;
    std::size_t payload_bytes = 0;
    unsigned payload_alignment = 1;
    Tensor<std::byte> dst;
    std::uint32_t* fault = nullptr;  ///< lowered to the first group whose bytes no encoder writes
};

}  // namespace lynx::cuda
