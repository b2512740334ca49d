// lynx_gpu_check [SOURCE_BYTES [REPETITIONS]]: compares every kernel with the CPU, times it, and prints both as JSON.
// Exit code: 0; 1 if something differs or failed; 77 if there is no device.
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <iostream>

#include "checks.hpp"
#include "lynx/cuda.hpp"

namespace {

constexpr int kNoDevice = 77;

/// A JSON string.
std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + '"';
}

void print(const std::vector<gpu_check::Check>& checks, const std::vector<gpu_check::Timing>& timings,
           const std::vector<gpu_check::Transfer>& transfers) {
    std::cout << std::fixed << std::setprecision(4) << "{\"device\": \"" << lynx::cuda::device_description()
              << "\", \"build\": \"" << lynx::cuda_description() << "\", \"identity\": [";
    const char* separator = "\n  ";
    for (const auto& c : checks) {
        std::cout << separator << "{\"name\": \"" << c.name << "\", \"compared\": " << c.compared
                  << ", \"differing\": " << c.differing << "}";
        separator = ",\n  ";
    }
    std::cout << "],\n\"kernels\": [";
    separator = "\n  ";
    for (const auto& t : timings) {
        std::cout << separator << "{\"name\": \"" << t.name << "\", \"head_dim\": " << t.head_dim
                  << ", \"source_bytes\": " << std::setprecision(0) << t.source_bytes << std::setprecision(4)
                  << ", \"milliseconds\": " << t.milliseconds << ", \"copy_milliseconds\": " << t.copy_milliseconds
                  << "}";
        separator = ",\n  ";
    }
    std::cout << "],\n\"transfers\": [";
    separator = "\n  ";
    for (const auto& t : transfers) {
        std::cout << separator << "{\"provider\": " << quoted(t.provider) << ", \"memory\": " << quoted(t.memory)
                  << ", \"path\": " << quoted(t.path) << ", \"why\": " << quoted(t.why)
                  << ", \"source_bytes\": " << std::setprecision(0) << t.source_bytes << std::setprecision(4)
                  << ", \"milliseconds\": " << t.milliseconds << ", \"compared\": " << t.compared
                  << ", \"differing\": " << t.differing << "}";
        separator = ",\n  ";
    }
    std::cout << "]}\n";
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (!lynx::cuda::available()) {
            std::cerr << lynx::cuda::device_description() << "\n";
            return kNoDevice;
        }
        const std::size_t source_bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{1} << 30;
        const int repetitions = argc > 2 ? std::atoi(argv[2]) : 20;
        const auto checks = gpu_check::compare_with_cpu();
        const auto timings = gpu_check::time_kernels(source_bytes, repetitions);
        const auto transfers = gpu_check::check_transfers();
        print(checks, timings, transfers);
        for (const auto& c : checks)
            if (c.differing != 0 || c.compared == 0) return 1;
        for (const auto& t : transfers)
            if (t.differing != 0 || t.compared == 0) return 1;
        return 0;
    } catch (const std::exception& e) {
        std::cerr << e.what() << "\n";
        return 1;
    }
}
