// What is fuzzed: each target takes any bytes, does its work on what they describe, and throws Finding where the code
// under test does what it must not. Run by libFuzzer (libfuzzer_main.cpp, `make fuzz`), and by the replay tests of the
// codec, the fabric and the stream on pseudo-random bytes, so that every compiler and sanitizer sees them.
#pragma once

#include <string_view>
#include <vector>

#include "lynx/buffer.hpp"

namespace lynx::fuzz {

/// The layout of any TensorSpec, and the planes of any bytes decoded by every codec, into any strides.
void decode(ConstByteSpan input);
/// The exact tier of any bytes, by every codec.
void decode_exact(ConstByteSpan input);
/// A tensor of any bits encoded with its exact tier, damaged or not, and decoded by every codec.
void damaged_exact(ConstByteSpan input);
/// A tensor of any bits and strides encoded by every codec.
void encode(ConstByteSpan input);
/// What the codec's targets start from: an input for each way that tensors come in.
[[nodiscard]] std::vector<std::vector<std::byte>> codec_seeds();

/// A control connection's bytes from a stranger: frames, handshakes of either role, sealed frames. The first byte says
/// which.
void control(ConstByteSpan input);
[[nodiscard]] std::vector<std::vector<std::byte>> control_seeds();

/// The messages of a stranger: manifest, grant, hello, notice. The first byte says which.
void manifest(ConstByteSpan input);
[[nodiscard]] std::vector<std::vector<std::byte>> manifest_seeds();

}  // namespace lynx::fuzz
