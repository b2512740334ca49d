#include "kernels.hpp"

#include <array>

namespace lynx::bench {
namespace {

constexpr unsigned kAnchorPlanes = 4;

void encode(const Call& call) {
    call.codec.encode(call.source, call.layout, call.coded);
}

template <unsigned planes>
void decode(const Call& call) {
    call.codec.decode(call.layout, call.coded, planes, call.destination);
}

void encode_exact(const Call& call) {
    call.codec.encode_exact(call.source, call.layout, call.coded);
}

void decode_exact(const Call& call) {
    call.codec.decode_exact(call.layout, call.coded, call.destination);
}

constexpr std::array kKernels{
    Kernel{.name = "encode", .run = encode, .any_dtype = true},
    Kernel{.name = "decode3", .run = decode<3>, .reads_coded = true},
    Kernel{.name = "decode4", .run = decode<4>, .reads_coded = true},
    Kernel{.name = "decode5", .run = decode<5>, .reads_coded = true},
    Kernel{.name = "decode8", .run = decode<kPlaneCount>, .reads_coded = true},
    // A cache in use: the destination holds the anchor's values. Beside it the same onto other values.
    Kernel{.name = "refine",
           .run = decode<kPlaneCount>,
           .reads_coded = true,
           .before = decode<kAnchorPlanes>,
           .beside = decode<kPlaneCount>},
    // The exact tier alone, behind planes that are there; and what the receiver does: planes and exact tier to bits.
    Kernel{.name = "encode_exact", .run = encode_exact, .reads_coded = true, .exact = true, .any_dtype = true},
    Kernel{.name = "decode_exact", .run = decode_exact, .reads_coded = true, .exact = true, .any_dtype = true},
};

}  // namespace

std::span<const Kernel> kernels() noexcept {
    return kKernels;
}

}  // namespace lynx::bench
