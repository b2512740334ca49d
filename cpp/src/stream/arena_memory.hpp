// The bytes of a node's arena: host, pinned or a device's, and which path that gives to the device's tensors.
#pragma once

#include <memory>
#include <string>

#include "lynx/node.hpp"

namespace lynx {

class ArenaMemory {
   public:
    /// Throws InvalidArgument for a kind that needs a device and has none, ArenaFull.
    explicit ArenaMemory(const NodeOptions& options);

    [[nodiscard]] ByteSpan span() const noexcept { return device_bytes_ ? device_bytes_->span() : host_bytes_.span(); }
    [[nodiscard]] std::size_t size() const noexcept { return span().size(); }
    /// For the registration of any part of it.
    [[nodiscard]] const MemoryPlace& place() const noexcept { return place_; }
    [[nodiscard]] DevicePath path() const noexcept { return path_; }
    [[nodiscard]] const std::string& why_not_direct() const noexcept { return why_not_direct_; }
    /// `manifest`, if the slots can hold it. Throws Unsupported if that takes a look of the host at what only the
    /// device can see: checksums, and exact tiers, whose length stands in their head.
    [[nodiscard]] const Manifest& fitting(const Manifest& manifest) const;
    /// Throws InvalidArgument, after `what` was to be done, if the host cannot touch the arena.
    void check_host(const char* what) const;
    /// The same if the device's tensors cannot travel.
    void check_device(const char* what) const;

    /// To be called before the device reads what peers have written.
    void flush_remote_writes() const;

   private:
    std::shared_ptr<Device> device_;  // first in, last out
    MemoryPlace place_;
    DevicePath path_ = DevicePath::kNone;
    std::string why_not_direct_;
    Buffer host_bytes_;  // one of the two
    std::unique_ptr<DeviceMemory> device_bytes_;
};

}  // namespace lynx
