// lynx_bench_codec [--full] [Google Benchmark's own flags]: times the codec's kernels against memcpy, one thread.
// `make bench-codec` runs it and makes a table of its JSON; by hand, --benchmark_filter=REGEX picks some.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iostream>
#include <span>
#include <string>

#include "lynx/version.hpp"
#include "suite.hpp"

namespace {

/// Whether the flag was given; it is taken out, since Google Benchmark knows only its own.
bool take_flag(int& argc, char** argv, const char* flag) {
    char** const end = std::remove_if(argv + 1, argv + argc, [&](char* arg) { return std::strcmp(arg, flag) == 0; });
    const bool given = end != argv + argc;
    argc = static_cast<int>(end - argv);
    return given;
}

int run(int argc, char** argv) {
    const bool full = take_flag(argc, argv, "--full");
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;

    const std::vector<lynx::bench::Case> cases = lynx::bench::cases(full);
    std::size_t largest = 0;
    for (const lynx::bench::Case& what : cases) largest = std::max(largest, what.source_bytes);
    lynx::bench::Arrays arrays(largest);
    lynx::bench::register_cases(cases, arrays);

    std::string isas;
    for (const std::string_view name : lynx::Codec::available()) {
        if (!isas.empty()) isas += ' ';
        isas += name;
    }
    benchmark::AddCustomContext("lynx", std::string(lynx::version()));
    benchmark::AddCustomContext("isas", isas);
    benchmark::AddCustomContext("memory_bytes", std::to_string(lynx::bench::memory_bytes()));
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& e) {
        std::cerr << "lynx_bench_codec: " << e.what() << '\n';
        return 1;
    }
}
