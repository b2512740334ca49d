// Memory that a device gives. The core knows no CUDA: lynx/cuda.hpp opens the device that does, and tests have one of
// host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "lynx/buffer.hpp"
#include "lynx/export.hpp"

namespace lynx {

enum class MemoryKind : std::uint8_t {
    kHost,    ///< pageable
    kPinned,  ///< host memory that the device copies to and from by itself, while the host does something else
    kCuda,    ///< of a CUDA device; the host must not touch it
};

/// "host", "pinned", "CUDA".
[[nodiscard]] LYNX_API std::string_view name_of(MemoryKind kind) noexcept;

/// An allocation, which ends with this object.
class LYNX_API DeviceMemory {
   public:
    virtual ~DeviceMemory() = default;
    [[nodiscard]] virtual ByteSpan span() const noexcept = 0;
};

/// A file of the kernel's by which drivers share memory. Closed with this object; what was registered by it stays.
class LYNX_API Dmabuf {
   public:
    Dmabuf(int file, std::uint64_t offset) noexcept : file_(file), offset_(offset) {}
    Dmabuf(Dmabuf&& other) noexcept;
    Dmabuf& operator=(Dmabuf&&) = delete;
    ~Dmabuf();

    [[nodiscard]] int file() const noexcept { return file_; }
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }  ///< of the memory in the file

   private:
    int file_;
    std::uint64_t offset_;
};

/// Its functions may be called from any thread.
class LYNX_API MemoryDevice {
   public:
    virtual ~MemoryDevice() = default;
    /// The device's number, as CUDA counts them.
    [[nodiscard]] virtual int number() const noexcept = 0;
    /// kPinned or kCuda, at a multiple of 256 bytes. Throws ArenaFull if there is not so much, InvalidArgument for
    /// kHost. The memory may outlive this object.
    [[nodiscard]] virtual std::unique_ptr<DeviceMemory> allocate(MemoryKind kind, std::size_t bytes) = 0;
    /// What that memory is. Throws InvalidArgument if it lies on another device.
    [[nodiscard]] virtual MemoryKind kind_of(const void* memory) const = 0;
    /// Of this device's memory; nothing if the driver makes none, which most cards then do without.
    [[nodiscard]] virtual std::optional<Dmabuf> export_dmabuf(ByteSpan memory) const = 0;
    /// What a network card has written into this device's memory, and reported, is seen by what is put on the device's
    /// streams from now on. May block for some microseconds.
    virtual void flush_remote_writes() = 0;
};

/// What some memory is said to be, and who can tell whether it is.
struct MemoryPlace {
    MemoryKind kind = MemoryKind::kHost;
    const MemoryDevice* device = nullptr;
};

}  // namespace lynx
