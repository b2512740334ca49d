#include "lynx/error.hpp"

namespace lynx {

// Out of line, so that each type has one vtable and one typeinfo, in this library: an exception thrown
// here is then caught by its type in every binary that links it.
Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
ArenaFull::~ArenaFull() = default;
Timeout::~Timeout() = default;
ConnectionFailed::~ConnectionFailed() = default;
AuthenticationFailed::~AuthenticationFailed() = default;
PeerLost::~PeerLost() = default;
Cancelled::~Cancelled() = default;
ProtocolError::~ProtocolError() = default;
CorruptData::~CorruptData() = default;
FabricError::~FabricError() = default;
Unsupported::~Unsupported() = default;
CudaError::~CudaError() = default;

}  // namespace lynx
