// One executable of libFuzzer for each target: LYNX_FUZZ_TARGET and LYNX_FUZZ_SEEDS name its functions.
//
//   fuzz_<target> --seeds=<folder>         writes the inputs to start from into the folder
//   fuzz_<target> [libFuzzer's arguments]  fuzzes
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "fuzz/targets.hpp"

namespace {

constexpr std::string_view kSeeds = "--seeds=";

void write_seeds(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const std::vector<std::byte>& seed : lynx::fuzz::LYNX_FUZZ_SEEDS()) {
        std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
        file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
    }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(const int* argc, char*** argv) {
    if (*argc == 2 && std::string_view((*argv)[1]).starts_with(kSeeds)) {
        write_seeds((*argv)[1] + kSeeds.size());
        std::exit(0);
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    lynx::fuzz::LYNX_FUZZ_TARGET({reinterpret_cast<const std::byte*>(data), size});
    return 0;
}
