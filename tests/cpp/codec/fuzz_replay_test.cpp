// The codec's fuzz targets without a fuzzer.
#include "fuzz/replay.hpp"

#include "fuzz/targets.hpp"

namespace lynx::fuzz {
namespace {

TEST(CodecFuzzReplay, DecodesAnyBytesWithinBounds) {
    replay(decode, codec_seeds(), 3000);
}

TEST(CodecFuzzReplay, DecodesAnyExactTierOrRefusesIt) {
    replay(decode_exact, codec_seeds(), 2000);
}

TEST(CodecFuzzReplay, RefusesOrDecodesADamagedExactTierAndRestoresAWholeOne) {
    replay(damaged_exact, codec_seeds(), 1500);
}

TEST(CodecFuzzReplay, EncodesAnyBitsToTheSameBytesWithEveryCodec) {
    replay(encode, codec_seeds(), 1500);
}

}  // namespace
}  // namespace lynx::fuzz
