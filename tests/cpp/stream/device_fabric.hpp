// A fabric whose card reaches into the fake device's memory, as one with GPUDirect does: libfabric, which is shown
// where the device has its bytes. For the tests of the direct path.
#pragma once

#include "lynx/fabric.hpp"
#include "stream/fake_device.hpp"

namespace lynx {

class DeviceFabric final : public FabricBackend {
   public:
    DeviceFabric(const FabricOptions& options, std::shared_ptr<FakeMachine> machine)
        : real_(options), machine_(std::move(machine)) {}

    [[nodiscard]] const std::string& provider() const noexcept override { return real_.provider(); }
    [[nodiscard]] bool delivery_complete() const noexcept override { return real_.delivery_complete(); }
    [[nodiscard]] std::unique_ptr<MemoryRegionBackend> register_memory(ByteSpan memory, MemoryAccess access) override {
        return real_.backend()->register_memory(memory, access);
    }
    [[nodiscard]] std::string why_no_device_memory() const override { return {}; }
    [[nodiscard]] std::unique_ptr<MemoryRegionBackend> register_device_memory(ByteSpan memory, MemoryAccess access,
                                                                              const MemoryDevice&) override {
        return real_.backend()->register_memory(
            {machine_->memory.inside(MemoryKind::kCuda, memory.data()), memory.size()}, access);
    }
    [[nodiscard]] std::unique_ptr<EndpointBackend> open_endpoint(EndpointHandler& handler,
                                                                 const EndpointOptions& options) override {
        return std::make_unique<CardEndpoint>(*real_.backend(), handler, options, machine_);
    }

   private:
    // Shows the provider where the source of each write really is.
    class Card final : public EndpointHandler {
       public:
        Card(EndpointHandler& handler, std::shared_ptr<FakeMachine> machine)
            : handler_(handler), machine_(std::move(machine)) {}
        void on_arrival(std::uint32_t tag) noexcept override { handler_.on_arrival(tag); }
        [[nodiscard]] const Write* next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept override {
            const Write* next = handler_.next_write(now, retry_at);
            if (next == nullptr) return nullptr;
            write_ = *next;
            write_.source = {machine_->memory.inside(MemoryKind::kCuda, next->source.data()), next->source.size()};
            return &write_;
        }
        void on_posted() noexcept override { handler_.on_posted(); }
        [[nodiscard]] bool on_refused() noexcept override { return handler_.on_refused(); }
        void on_written(std::uint64_t cookie) noexcept override { handler_.on_written(cookie); }
        void on_write_failed(std::uint64_t cookie, std::exception_ptr error) noexcept override {
            handler_.on_write_failed(cookie, std::move(error));
        }
        void on_broken(const std::exception_ptr& error) noexcept override { handler_.on_broken(error); }

       private:
        EndpointHandler& handler_;
        const std::shared_ptr<FakeMachine> machine_;
        Write write_;
    };

    class CardEndpoint final : public EndpointBackend {
       public:
        CardEndpoint(FabricBackend& real, EndpointHandler& handler, const EndpointOptions& options,
                     std::shared_ptr<FakeMachine> machine)
            : card_(handler, std::move(machine)), real_(real.open_endpoint(card_, options)) {}
        [[nodiscard]] std::vector<std::byte> address() const override { return real_->address(); }
        [[nodiscard]] PeerId add_peer(ConstByteSpan address) override { return real_->add_peer(address); }
        void remove_peer(PeerId peer) noexcept override { real_->remove_peer(peer); }
        void wake() noexcept override { real_->wake(); }

       private:
        Card card_;
        std::unique_ptr<EndpointBackend> real_;  // last: its thread calls the card
    };

    Fabric real_;
    const std::shared_ptr<FakeMachine> machine_;
};

}  // namespace lynx
