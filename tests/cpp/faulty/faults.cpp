#include "faulty/faults.hpp"

namespace lynx::faulty {
namespace {

/// The finalizer of SplitMix64: every bit of the result depends on every bit of `x`.
std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

}  // namespace

FaultOptions FaultOptions::each(double probability, std::uint64_t seed) {
    FaultOptions options{.seed = seed};
    options.probability.fill(probability);
    return options;
}

FaultOptions FaultOptions::only(Fault fault, double probability, std::uint64_t seed) {
    FaultOptions options{.seed = seed};
    options.probability.at(static_cast<std::size_t>(fault)) = probability;
    return options;
}

std::uint64_t draw(std::uint64_t seed, const WriteId& write, std::uint64_t use) {
    std::uint64_t bits = mix(seed);
    for (const std::uint64_t part :
         {write.stream, std::uint64_t{write.tag}, write.offset, std::uint64_t{write.tried}, use})
        bits = mix(bits ^ part);
    return bits;
}

Fault decide(const FaultOptions& options, const WriteId& write) {
    double left = static_cast<double>(draw(options.seed, write, 0) >> 11) * 0x1p-53;  // uniform in [0, 1)
    for (std::size_t i = 1; i < kFaults; ++i) {
        left -= options.probability[i];
        if (left < 0) return static_cast<Fault>(i);
    }
    return Fault::kNone;
}

}  // namespace lynx::faulty
