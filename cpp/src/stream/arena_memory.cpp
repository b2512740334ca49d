#include "stream/arena_memory.hpp"

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

namespace {

/// A trial of what each rail's provider makes of the device's memory. Empty if all take it.
std::string refusal(const NodeOptions& options) {
    constexpr std::size_t kTrialBytes = 2u << 20;  // as much as a page of a device
    std::vector<FabricOptions> rails = options.more_rails;
    rails.insert(rails.begin(), options.fabric);
    const auto memory = options.device->allocate(MemoryKind::kCuda, kTrialBytes);
    for (FabricOptions& rail : rails) {
        try {
            rail.device_memory = true;
            const Fabric fabric(rail);
            if (std::string why = fabric.why_no_device_memory(); !why.empty()) return why;
            const MemoryRegion trial(fabric, memory->span(), MemoryAccess::kRemoteWrite,
                                     {MemoryKind::kCuda, options.device.get()});
        } catch (const FabricError& refused) {
            return refused.what();
        }
    }
    return {};
}

}  // namespace

ArenaMemory::ArenaMemory(const NodeOptions& options) : device_(options.device) {
    if (options.memory == MemoryKind::kHost) {
        why_not_direct_ =
            "the arena is host memory: NodeOptions::memory, with a device, makes it pinned or CUDA memory";
        host_bytes_ = Buffer(options.arena_bytes);
        return;
    }
    if (device_ == nullptr)
        throw InvalidArgument(text("an arena of ", name_of(options.memory),
                                   " memory was asked for, and no device is given: set NodeOptions::device "
                                   "(lynx::cuda::open_device)"));
    if (options.arena_bytes == 0) throw InvalidArgument("an arena of 0 bytes was asked for; ask for at least 1");
    why_not_direct_ =
        options.memory == MemoryKind::kPinned ? "the arena is pinned memory, as was asked for" : refusal(options);
    path_ = why_not_direct_.empty() ? DevicePath::kDirect : DevicePath::kStaged;
    place_ = {path_ == DevicePath::kDirect ? MemoryKind::kCuda : MemoryKind::kPinned, device_.get()};
    device_bytes_ = device_->allocate(place_.kind, options.arena_bytes);
}

const Manifest& ArenaMemory::fitting(const Manifest& manifest) const {
    if (path_ != DevicePath::kDirect) return manifest;
    const char* what = manifest.checksums                       ? "checksums"
                       : manifest.parts > manifest.exact_part() ? "the exact tier"
                                                                : nullptr;
    if (what == nullptr) return manifest;
    throw Unsupported(text("request ", manifest.request_id, " has ", what,
                           ", which takes a look of the host at each chunk, and a slot in CUDA memory was to hold it: "
                           "send it without, or make the arena pinned memory"));
}

void ArenaMemory::flush_remote_writes() const {
    if (path_ == DevicePath::kDirect) device_->flush_remote_writes();
}

void ArenaMemory::check_host(const char* what) const {
    if (path_ == DevicePath::kDirect)
        throw InvalidArgument(text("a tensor in host memory was to be ", what,
                                   "; this node's arena is CUDA memory: give a tensor of its device, or make the arena "
                                   "pinned memory"));
}

void ArenaMemory::check_device(const char* what) const {
    if (path_ == DevicePath::kNone)
        throw InvalidArgument(text("a tensor on a device was to be ", what, "; ", why_not_direct_));
}

}  // namespace lynx
