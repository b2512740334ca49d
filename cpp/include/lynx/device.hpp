// A device that codes: what a Node needs to send and receive tensors that lie in a device's memory.
#pragma once

#include <cstdint>
#include <memory>

#include "lynx/device_memory.hpp"
#include "lynx/export.hpp"
#include "lynx/plane_layout.hpp"
#include "lynx/tensor_view.hpp"

namespace lynx {

/// Says that a tensor lies in the memory of the node's device, and in the order of which stream of the caller's it is
/// read or written: a cudaStream_t; null is CUDA's default stream. What is on that stream by now comes first, and what
/// is put on it later comes after.
struct OnDevice {
    void* stream = nullptr;
};

/// What came of the work on a stream since the last wait().
struct DeviceOutcome {
    std::uint64_t nonfinite_vectors = 0;  ///< see EncodeStats
    bool exact_fault = false;             ///< bytes were decoded that no encoder writes; see Codec::decode_exact
};

/// A queue of work on a device, done in order. Every call but wait() returns once its work is queued; what it was
/// given has to stay as it is until then. For one thread at a time. Throws InvalidArgument for what does not fit or
/// lies in other memory, CudaError where the device refuses.
class LYNX_API DeviceStream {
   public:
    virtual ~DeviceStream() = default;
    /// What is queued next begins when all that is on the caller's stream now has ended.
    virtual void follow(void* caller) = 0;
    /// What is put on the caller's stream next begins when all that is queued here now has ended.
    virtual void precede(void* caller) = 0;
    /// As Codec::encode and, if the layout has an exact tier, encode_exact; all in the device's memory, `coded` at a
    /// multiple of 16 bytes.
    virtual void encode(const TensorView& source, const PlaneLayout& layout, ByteSpan coded) = 0;
    /// As Codec::decode.
    virtual void decode(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes,
                        const MutableTensorView& destination) = 0;
    /// As Codec::decode_exact, but that bad bytes are told by wait().
    virtual void decode_exact(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& destination) = 0;
    /// Between pinned memory and the device's, either way. Of equal sizes.
    virtual void copy(ConstByteSpan from, ByteSpan to) = 0;
    /// Writes zeros into the device's memory.
    virtual void clear(ByteSpan memory) = 0;
    /// Waits until all that is queued has ended. Throws CudaError for what failed on the device since the last wait.
    [[nodiscard]] virtual DeviceOutcome wait() = 0;
};

class LYNX_API Device : public MemoryDevice {
   public:
    /// The stream may outlive this object.
    [[nodiscard]] virtual std::unique_ptr<DeviceStream> open_stream() = 0;
};

}  // namespace lynx
