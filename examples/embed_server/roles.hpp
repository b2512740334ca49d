// The two sides of a transfer. Each serves one request and returns; all they open is closed when they do, on every way
// out.
#pragma once

#include <chrono>

#include "options.hpp"

/// For an answer that takes the other side no time.
inline constexpr std::chrono::seconds kAnswerPatience{5};
/// For a peer that has yet to be started.
inline constexpr std::chrono::seconds kPeerPatience{60};
/// With nothing new for so long, a transfer has failed.
inline constexpr std::chrono::seconds kStallPatience{30};

/// Prints "listening PORT" on stdout, computes and sends a cache to the first peer, and says what was sent. Throws
/// lynx::Error, Interrupted.
void run_prefill(const Options& options);

/// Receives a cache, decodes it layer by layer while it arrives, and prints when what was there. False if a value is
/// further from the sender's than its part allows. Throws lynx::Error, Interrupted.
[[nodiscard]] bool run_decode(const Options& options);
