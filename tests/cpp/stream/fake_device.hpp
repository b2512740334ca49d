// A device of host memory, for the tests of the staged and the direct path. Its memory cannot be touched by the host:
// what it gives out are addresses without access, and only its own copies and kernels know where the bytes are. Each
// of its streams has a thread that does its work, some time after it was queued.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "codec/checks.hpp"
#include "lynx/codec.hpp"
#include "lynx/device.hpp"
#include "lynx/error.hpp"

namespace lynx {

/// What the device's memory looks like from both sides. Outlives all that was allocated.
class FakeAddressSpace {
   public:
    struct Block {
        std::size_t bytes = 0;
        MemoryKind kind = MemoryKind::kCuda;
        std::byte* inside = nullptr;  // where the device has it
    };

    std::byte* map(MemoryKind kind, std::size_t bytes) {
        const int file = ::memfd_create("fake-device", 0);
        if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0)
            throw std::system_error(errno, std::generic_category(), "memfd");
        const auto mapped = [&](int access) {
            void* at = ::mmap(nullptr, bytes, access, MAP_SHARED, file, 0);
            if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
            return static_cast<std::byte*>(at);
        };
        std::byte* inside = mapped(PROT_READ | PROT_WRITE);
        std::byte* shown = kind == MemoryKind::kCuda ? mapped(PROT_NONE) : inside;
        ::close(file);
        const std::lock_guard lock(mutex_);
        blocks_[shown] = {bytes, kind, inside};
        return shown;
    }

    void unmap(std::byte* shown) {
        const std::lock_guard lock(mutex_);
        const Block block = blocks_.at(shown);
        blocks_.erase(shown);
        ::munmap(block.inside, block.bytes);
        if (block.inside != shown) ::munmap(shown, block.bytes);
    }

    [[nodiscard]] MemoryKind kind_of(const void* memory) const {
        const std::lock_guard lock(mutex_);
        const auto it = find(memory);
        return it == blocks_.end() ? MemoryKind::kHost : it->second.kind;
    }

    /// Where the device finds `memory`, of which it is to be of that kind.
    template <class Byte>
    [[nodiscard]] Byte* inside(MemoryKind kind, Byte* memory) const {
        const std::lock_guard lock(mutex_);
        const auto it = find(memory);
        const MemoryKind found = it == blocks_.end() ? MemoryKind::kHost : it->second.kind;
        if (found != kind)
            throw InvalidArgument(std::string(name_of(found)) + " memory was given to a fake device; it takes " +
                                  std::string(name_of(kind)) + " memory there");
        return it->second.inside + (memory - it->first);
    }

    [[nodiscard]] std::size_t blocks() const {
        const std::lock_guard lock(mutex_);
        return blocks_.size();
    }

   private:
    [[nodiscard]] std::map<const std::byte*, Block>::const_iterator find(const void* memory) const {
        const auto* at = static_cast<const std::byte*>(memory);
        auto it = blocks_.upper_bound(at);
        if (it == blocks_.begin()) return blocks_.end();
        --it;
        return at < it->first + it->second.bytes ? it : blocks_.end();
    }

    mutable std::mutex mutex_;
    std::map<const std::byte*, Block> blocks_;
};

/// What happened on the device, in order: "kernel 2 begins", "copy 1 ends". Kernels and copies are counted apart.
class FakeLog {
   public:
    void add(const std::string& event) {
        const std::lock_guard lock(mutex_);
        events_.push_back(event);
        changed_.notify_all();
    }
    /// Its place; -1 if it did not happen.
    [[nodiscard]] long place_of(const std::string& event) const {
        const std::lock_guard lock(mutex_);
        const auto it = std::find(events_.begin(), events_.end(), event);
        return it == events_.end() ? -1 : it - events_.begin();
    }
    bool wait_for(const std::string& event, std::chrono::seconds limit) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, limit,
                                 [&] { return std::find(events_.begin(), events_.end(), event) != events_.end(); });
    }

   private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> events_;
};

/// What the streams of a device share.
struct FakeMachine {
    FakeAddressSpace memory;
    FakeLog log;
    std::atomic<int> kernels = 0, copies = 0;
    std::atomic<int> failing_kernel = -1, failing_copy = -1;  // of these numbers
    /// Called by copy `number` before it moves anything: a test holds it up here.
    std::function<void(int number)> before_copy = [](int) {};
    std::atomic<int> streams = 0, flushes = 0;
    std::atomic<int> exports = 0;
};

class FakeStream final : public DeviceStream {
   public:
    explicit FakeStream(std::shared_ptr<FakeMachine> machine)
        : machine_(std::move(machine)), thread_([this](const std::stop_token& stop) { work(stop); }) {
        machine_->streams += 1;
    }
    ~FakeStream() override { machine_->streams -= 1; }

    /// Any work, as a caller puts it on a stream of its own.
    void put(std::function<void()> task) {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        changed_.notify_all();
    }

    void follow(void* caller) override {
        if (caller == nullptr) return;  // the tests' default stream is the host itself
        link(*static_cast<FakeStream*>(caller), *this);
    }
    void precede(void* caller) override {
        if (caller == nullptr) {
            std::promise<void> reached;
            put([&] { reached.set_value(); });
            reached.get_future().wait();
        } else {
            link(*this, *static_cast<FakeStream*>(caller));
        }
    }
    void encode(const TensorView& source, const PlaneLayout& layout, ByteSpan coded) override {
        TensorView from = source;
        from.data = on_device(source.data);
        codec::check_view("FakeStream::encode", "source", source, layout.spec());
        kernel([this, from, layout, to = on_device(coded)] {
            outcome_.nonfinite_vectors += Codec::best().encode(from, layout, to).nonfinite_vectors;
            if (layout.has_exact()) (void)Codec::best().encode_exact(from, layout, to);
        });
    }
    void decode(const PlaneLayout& layout, ConstByteSpan coded, unsigned planes,
                const MutableTensorView& destination) override {
        MutableTensorView to = destination;
        to.data = on_device(destination.data);
        codec::check_view("FakeStream::decode", "destination", destination, layout.spec());
        kernel([layout, from = on_device(coded), planes, to] { Codec::best().decode(layout, from, planes, to); });
    }
    void decode_exact(const PlaneLayout& layout, ConstByteSpan coded, const MutableTensorView& destination) override {
        MutableTensorView to = destination;
        to.data = on_device(destination.data);
        codec::check_view("FakeStream::decode_exact", "destination", destination, layout.spec());
        kernel([this, layout, from = on_device(coded), to] {
            try {
                Codec::best().decode_exact(layout, from, to);
            } catch (const CorruptData&) {
                outcome_.exact_fault = true;
            }
        });
    }
    void copy(ConstByteSpan from, ByteSpan to) override {
        if (from.size() != to.size()) throw InvalidArgument("a copy between memory of two sizes");
        if (from.empty()) return;
        const bool down = machine_->memory.kind_of(from.data()) == MemoryKind::kCuda;
        const std::byte* source = machine_->memory.inside(down ? MemoryKind::kCuda : MemoryKind::kPinned, from.data());
        std::byte* target = machine_->memory.inside(down ? MemoryKind::kPinned : MemoryKind::kCuda, to.data());
        run("copy", machine_->copies++, machine_->failing_copy,
            [this, source, target, bytes = from.size()](int number) {
                machine_->before_copy(number);
                std::memcpy(target, source, bytes);
            });
    }
    void clear(ByteSpan memory) override {
        put([to = on_device(memory)] { std::memset(to.data(), 0, to.size()); });
    }
    DeviceOutcome wait() override {
        std::promise<void> reached;
        put([&] { reached.set_value(); });
        reached.get_future().wait();
        const std::lock_guard lock(mutex_);
        const DeviceOutcome outcome = std::exchange(outcome_, {});
        if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
        return outcome;
    }

   private:
    template <class Byte>
    [[nodiscard]] Byte* on_device(Byte* memory) const {
        return machine_->memory.inside(MemoryKind::kCuda, memory);
    }
    template <class Byte>
    [[nodiscard]] std::span<Byte> on_device(std::span<Byte> memory) const {
        if (memory.empty()) return {};
        return {on_device(memory.data()), memory.size()};
    }
    static void link(FakeStream& first, FakeStream& then) {
        auto reached = std::make_shared<std::promise<void>>();
        first.put([reached] { reached->set_value(); });
        then.put([reached] { reached->get_future().wait(); });
    }
    void kernel(std::function<void()> task) {
        run("kernel", machine_->kernels++, machine_->failing_kernel, [task = std::move(task)](int) { task(); });
    }
    void run(const std::string& what, int number, const std::atomic<int>& failing, std::function<void(int)> task) {
        const std::string name = what + " " + std::to_string(number);
        put([this, name, number, &failing, task = std::move(task)] {
            if (error_) return;  // nothing runs after a fault, until somebody has been told
            machine_->log.add(name + " begins");
            if (number == failing)
                error_ = std::make_exception_ptr(CudaError(name + " failed on the fake device"));
            else
                task(number);
            machine_->log.add(name + " ends");
        });
    }
    void work(const std::stop_token& asked_to_stop) {
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, asked_to_stop, [&] { return !tasks_.empty(); });
            if (tasks_.empty()) return;
            const auto task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
        }
    }

    const std::shared_ptr<FakeMachine> machine_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<std::function<void()>> tasks_;
    // The thread's, and wait()'s once the thread has come that far.
    DeviceOutcome outcome_;
    std::exception_ptr error_;
    std::jthread thread_;  // last
};

class FakeDevice final : public Device {
   public:
    [[nodiscard]] int number() const noexcept override { return 3; }
    [[nodiscard]] std::unique_ptr<DeviceMemory> allocate(MemoryKind kind, std::size_t bytes) override {
        struct Memory final : DeviceMemory {
            Memory(std::shared_ptr<FakeMachine> m, MemoryKind k, std::size_t size)
                : machine(std::move(m)), bytes(machine->memory.map(k, size), size) {}
            ~Memory() override { machine->memory.unmap(bytes.data()); }
            [[nodiscard]] ByteSpan span() const noexcept override { return bytes; }
            const std::shared_ptr<FakeMachine> machine;
            const ByteSpan bytes;
        };
        return std::make_unique<Memory>(machine, kind, bytes);
    }
    [[nodiscard]] MemoryKind kind_of(const void* memory) const override { return machine->memory.kind_of(memory); }
    [[nodiscard]] std::optional<Dmabuf> export_dmabuf(ByteSpan) const override {
        machine->exports += 1;
        return std::optional<Dmabuf>(std::in_place, ::memfd_create("fake-dmabuf", 0), 0);
    }
    void flush_remote_writes() override { machine->flushes += 1; }
    [[nodiscard]] std::unique_ptr<DeviceStream> open_stream() override { return std::make_unique<FakeStream>(machine); }

    /// A tensor of the device with these values.
    template <class T>
    [[nodiscard]] std::unique_ptr<DeviceMemory> upload(const std::vector<T>& values) {
        auto memory = allocate(MemoryKind::kCuda, values.size() * sizeof(T));
        std::memcpy(machine->memory.inside(MemoryKind::kCuda, memory->span().data()), values.data(),
                    memory->span().size());
        return memory;
    }
    template <class T>
    [[nodiscard]] std::vector<T> download(const DeviceMemory& memory) const {
        std::vector<T> values(memory.span().size() / sizeof(T));
        std::memcpy(values.data(), machine->memory.inside(MemoryKind::kCuda, memory.span().data()),
                    memory.span().size());
        return values;
    }

    const std::shared_ptr<FakeMachine> machine = std::make_shared<FakeMachine>();
};

}  // namespace lynx
