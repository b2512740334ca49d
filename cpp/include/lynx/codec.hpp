// The codec: a tensor to bit-planes, and any prefix of the planes back to a tensor.
// The arithmetic is the wire format and is written down in docs/wire-format.md.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "lynx/buffer.hpp"
#include "lynx/executor.hpp"
#include "lynx/export.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx {

namespace codec {
struct Kernels;  // one instruction set's functions, see cpp/src/codec/kernels.hpp
}

struct EncodeStats {
    /// Head vectors that held a NaN or an infinity, or whose rotation overflowed fp32 (values near 1e38). They
    /// are coded as all zeros; their neighbours are untouched.
    std::size_t nonfinite_vectors = 0;
};

/// One instruction set's codec. Stateless: every member may be called from any number of threads at once.
class LYNX_API Codec {
   public:
    /// The fastest the CPU runs; chosen once a process. LYNX_ISA in the environment forces one by name.
    [[nodiscard]] static const Codec& best();
    /// By name ("scalar", ...). Throws InvalidArgument listing the names if this CPU or build lacks it.
    [[nodiscard]] static const Codec& by_name(std::string_view name);
    /// Names of all that run on this CPU, the fastest first.
    [[nodiscard]] static std::vector<std::string_view> available();

    [[nodiscard]] std::string_view name() const noexcept;

    /// Writes the coded tensor into `dst`, which holds exactly layout.bytes(). Reads `src` once, allocates
    /// nothing. `src` has the layout's heads, tokens and head_dim; its dtype may be any for kPlanes and is
    /// the layout's for kRaw. Throws InvalidArgument if a shape, dtype or size does not fit.
    ///
    /// With an executor a tensor that is large enough is cut into tasks for it; the bytes are the same whatever
    /// its threads are. What the executor throws passes through, and `dst` then holds nothing of use.
    EncodeStats encode(const TensorView& src, const PlaneLayout& layout, ByteSpan dst,
                       Executor* executor = nullptr) const;

    /// Decodes the first `planes` planes (1-8; 1 for kRaw) of `src`, a coded tensor of exactly
    /// layout.bytes() of which only those planes, scales, zeros and sinks are read, into `dst` of any dtype.
    /// From anchor_bits planes on, the sink tokens come out as from all 8. Throws InvalidArgument as encode does.
    /// With an executor, as encode; then no two elements of `dst` may share memory.
    void decode(const PlaneLayout& layout, ConstByteSpan src, unsigned planes, const MutableTensorView& dst,
                Executor* executor = nullptr) const;

    /// Writes the exact tier behind the planes that encode() has written of the same `src` into the same `coded`, and
    /// allocates nothing. Returns how many bytes of layout.exact_payload() it takes. Throws InvalidArgument as encode
    /// does, and if the layout has no exact tier or its dtype is not src's. With an executor, as encode; what lies in
    /// the payload behind those bytes may then be overwritten, and means nothing in any case.
    std::size_t encode_exact(const TensorView& src, const PlaneLayout& layout, ByteSpan coded,
                             Executor* executor = nullptr) const;

    /// Restores what was encoded, bit for bit, from all planes and the exact tier; into a `dst` of another dtype it is
    /// converted: bf16 and fp16 to fp32 exactly. Throws CorruptData, with `dst` in part overwritten, if the exact
    /// tier's groups do not fit their index or their bits do not end where they should; most damage changes values and
    /// shows nowhere, so that a checksum is the transport's to keep. Throws InvalidArgument as decode does. With an
    /// executor, as decode.
    void decode_exact(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& dst,
                      Executor* executor = nullptr) const;

   private:
    explicit Codec(const codec::Kernels& kernels) noexcept : kernels_(&kernels) {}
    friend struct CodecRegistry;
    const codec::Kernels* kernels_;
};

}  // namespace lynx
