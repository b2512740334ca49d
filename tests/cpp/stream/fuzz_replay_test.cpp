// The fuzz target of what a stranger sends, without a fuzzer.
#include "fuzz/replay.hpp"

#include "fuzz/targets.hpp"

namespace lynx::fuzz {
namespace {

TEST(ManifestFuzzReplay, ReadsOrRefusesAnyMessage) {
    replay(manifest, manifest_seeds(), 20000);
}

}  // namespace
}  // namespace lynx::fuzz
