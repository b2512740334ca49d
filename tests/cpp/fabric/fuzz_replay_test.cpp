// The fuzz target of what a stranger sends over a control connection, without a fuzzer.
#include "fuzz/replay.hpp"

#include "fuzz/targets.hpp"

namespace lynx::fuzz {
namespace {

TEST(ControlFuzzReplay, RefusesAnyStranger) {
    replay(control, control_seeds(), 20000);
}

}  // namespace
}  // namespace lynx::fuzz
