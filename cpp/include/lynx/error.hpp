// The errors that Lynx throws. Each message names what was asked, what went wrong and what to do.
// Python sees the same types under the same names.
#pragma once

#include <stdexcept>
#include <string>

#include "lynx/export.hpp"

namespace lynx {

/// Base of everything Lynx throws on purpose.
class LYNX_API Error : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
    ~Error() override;
};

/// The caller passed something that cannot be used: a shape, a dtype, a size, a name.
class LYNX_API InvalidArgument : public Error {
   public:
    using Error::Error;
    ~InvalidArgument() override;
};

/// The registered arena has no room left for what was asked.
class LYNX_API ArenaFull : public Error {
   public:
    using Error::Error;
    ~ArenaFull() override;
};

/// A deadline passed first.
class LYNX_API Timeout : public Error {
   public:
    using Error::Error;
    ~Timeout() override;
};

/// An address could not be listened on, or nobody answered at it.
class LYNX_API ConnectionFailed : public Error {
   public:
    using Error::Error;
    ~ConnectionFailed() override;
};

/// A peer has not proved that it has the same pre-shared key, or what came over its connection was not sent by it.
class LYNX_API AuthenticationFailed : public Error {
   public:
    using Error::Error;
    ~AuthenticationFailed() override;
};

/// A peer that was there has gone: its process ended or the link broke.
class LYNX_API PeerLost : public Error {
   public:
    using Error::Error;
    ~PeerLost() override;
};

/// The other side ended the transfer on purpose.
class LYNX_API Cancelled : public Error {
   public:
    using Error::Error;
    ~Cancelled() override;
};

/// What a peer sent cannot be accepted: another version, a malformed message, a layout that does not fit.
class LYNX_API ProtocolError : public Error {
   public:
    using Error::Error;
    ~ProtocolError() override;
};

/// Coded bytes do not hold together: they were damaged, or never written. (Not all damage shows; this is no checksum.)
class LYNX_API CorruptData : public Error {
   public:
    using Error::Error;
    ~CorruptData() override;
};

/// A libfabric call failed, or no provider fits; the message names the call and the provider.
class LYNX_API FabricError : public Error {
   public:
    using Error::Error;
    ~FabricError() override;
};

/// This build or this machine lacks what was asked for, such as CUDA or a device.
class LYNX_API Unsupported : public Error {
   public:
    using Error::Error;
    ~Unsupported() override;
};

/// The CUDA runtime refused a call; the message names it and gives the runtime's words.
class LYNX_API CudaError : public Error {
   public:
    using Error::Error;
    ~CudaError() override;
};

}  // namespace lynx
