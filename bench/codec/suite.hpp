// The benchmarks: every kernel for every instruction set, head_dim and size, each against memcpy.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "kernels.hpp"

namespace lynx::bench {

/// A kernel on a tensor of one size, by one instruction set.
struct Case {
    const Kernel* kernel;
    const Codec* codec;
    TensorSpec spec;
    std::size_t source_bytes;
    int repetitions;

    /// KERNEL/DTYPE/isa:NAME/head_dim:N/bytes:N, which bench/codec/results.py reads.
    [[nodiscard]] std::string name() const;
};

/// The size at which no cache helps: eight times the last-level cache, from 256 MiB to 1 GiB.
[[nodiscard]] std::size_t memory_bytes();

/// All sizes, kernels and dtypes with `full`; else what takes minutes: bf16, and large tensors only where the
/// kernels are fast.
[[nodiscard]] std::vector<Case> cases(bool full);

/// Registers each with Google Benchmark. `arrays` has to outlive the run and to hold the largest.
void register_cases(const std::vector<Case>& cases, Arrays& arrays);

}  // namespace lynx::bench
