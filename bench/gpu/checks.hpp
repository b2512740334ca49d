// What the check program finds out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpu_check {

/// How many values or bytes of one kind of result differ from the CPU's; 0 is what is wanted.
struct Check {
    std::string name;
    std::size_t compared = 0;
    std::size_t differing = 0;
};

/// A kernel's time against a device copy of as many bytes as the source has.
struct Timing {
    std::string name;
    unsigned head_dim = 0;
    double milliseconds = 0;
    double copy_milliseconds = 0;
    double source_bytes = 0;
};

/// A cache that went from the device's memory to the device's memory.
struct Transfer {
    std::string provider;
    std::string memory;  ///< what was asked for, of both nodes
    std::string path;    ///< what came of it: "staged" or "direct"; or "failed"
    std::string why;     ///< not direct, or failed
    double source_bytes = 0;
    double milliseconds = 0;  ///< from the first put() until all is decoded
    std::size_t compared = 0;
    std::size_t differing = 0;
};

/// Every kernel on head_dims and dtypes of all kinds, with bits of all kinds, against the scalar codec.
[[nodiscard]] std::vector<Check> compare_with_cpu();

/// Every kernel on bf16 tensors of `source_bytes`.
[[nodiscard]] std::vector<Timing> time_kernels(std::size_t source_bytes, int repetitions);

/// Over shm and tcp, with pinned and with CUDA memory; nothing where the program was built without transfers.
[[nodiscard]] std::vector<Transfer> check_transfers();

}  // namespace gpu_check
