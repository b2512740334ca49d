// Built where no CUDA compiler is used: says so.
#include "core/text.hpp"
#include "lynx/cuda.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace {

[[noreturn]] void refuse(const char* call) {
    throw Unsupported(text(call,
                           ": this build has no CUDA; build with LYNX_CUDA=ON where nvcc is installed, or use "
                           "Codec on tensors in host memory"));
}

}  // namespace

std::string_view cuda_description() noexcept {
    return "not built";
}

namespace cuda {

bool available() {
    return false;
}

std::string device_description() {
    return "CUDA is not built in";
}

std::shared_ptr<Device> open_device(int) {
    refuse("cuda::open_device");
}

void encode(const TensorView&, const PlaneLayout&, ByteSpan, Stream, std::uint64_t*) {
    refuse("cuda::encode");
}
void decode(const PlaneLayout&, ConstByteSpan, unsigned, const MutableTensorView&, Stream) {
    refuse("cuda::decode");
}
void encode_exact(const TensorView&, const PlaneLayout&, ByteSpan, ByteSpan, Stream) {
    refuse("cuda::encode_exact");
}
void decode_exact(const PlaneLayout&, ConstByteSpan, const MutableTensorView&, std::uint32_t*, Stream) {
    refuse("cuda::decode_exact");
}

}  // namespace cuda
}  // namespace lynx
