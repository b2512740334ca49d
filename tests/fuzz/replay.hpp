// A fuzz target on pseudo-random bytes: always the same ones, with any compiler, in bounded time. It finds less than
// libFuzzer, which sees where its inputs lead; but it runs wherever the tests do.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "lynx/buffer.hpp"

namespace lynx::fuzz {

[[nodiscard]] inline std::string hex(ConstByteSpan bytes) {
    std::string digits;
    for (const std::byte b : bytes)
        for (const int shift : {4, 0}) digits += "0123456789abcdef"[(std::to_integer<unsigned>(b) >> shift) & 15u];
    return digits;
}

/// The seeds, then `runs` of them with some bytes changed and the end cut off. Stops at the first finding.
inline void replay(void (*target)(ConstByteSpan), const std::vector<std::vector<std::byte>>& seeds, std::size_t runs) {
    std::mt19937 random(11);
    for (std::size_t run = 0; run < seeds.size() + runs; ++run) {
        std::vector<std::byte> input = seeds[run % seeds.size()];
        if (run >= seeds.size()) {
            for (std::size_t changes = 1 + random() % 16; changes > 0; --changes)
                input[random() % input.size()] = static_cast<std::byte>(random());
            if (random() % 4 == 0) input.resize(random() % input.size());
        }
        try {
            target(input);
        } catch (const std::exception& e) {
            FAIL() << "run " << run << ": " << e.what() << "\nthe input: " << hex(input);
        }
    }
}

}  // namespace lynx::fuzz
