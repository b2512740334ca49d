// Built where libfabric, FlatBuffers or xxHash is not installed.
#include "checks.hpp"

namespace gpu_check {

std::vector<Transfer> check_transfers() {
    return {};
}

}  // namespace gpu_check
