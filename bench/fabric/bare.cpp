#include "bare.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bare_connection.hpp"
#include "lynx/buffer.hpp"

namespace lynx::bench {

namespace {

constexpr std::size_t kMaxInFlight = 64;

class BareEnd final : public End {
   public:
    BareEnd(bool sends, const std::string& provider, const std::string& host, std::size_t memory_bytes)
        : sends_(sends), memory_(memory_bytes), connection_(provider, host, memory_.span()) {
        if (sends_) source_ = Buffer(memory_bytes);
        std::memset(memory_.span().data(), 1, memory_bytes);
        if (sends_) std::memset(source_.span().data(), 2, memory_bytes);
    }

    std::string endpoint() override { return connection_.endpoint(); }
    void connect(const std::string& endpoint) override { connection_.connect(endpoint); }
    void goodput(const Load& load, const Answer& answer) override;
    void latency(std::size_t bytes, std::size_t count, const Answer& answer) override;
    void contend(const Contention&, const Answer&) override {
        throw std::runtime_error("bare libfabric has no requests that could contend");
    }

   private:
    void post(std::size_t offset, std::size_t bytes) {
        while (!connection_.write(offset, bytes)) poll();
    }
    void poll() {
        const auto now = connection_.poll();
        written_ += now.written;
        arrived_ += now.arrived;
        if (now.written + now.arrived > 0) return;
        if (late_.passed()) throw std::runtime_error("nothing has moved until the deadline");
        std::this_thread::yield();  // The other end may need this core.
    }
    void begin() {
        written_ = arrived_ = 0;
        late_ = Deadline::after(kLongest);
    }

    const bool sends_;
    Buffer memory_;
    Buffer source_;
    BareConnection connection_;
    std::size_t written_ = 0;
    std::size_t arrived_ = 0;
    Deadline late_ = Deadline::after(kLongest);
};

void BareEnd::goodput(const Load& load, const Answer& answer) {
    const std::size_t chunks = load.total_bytes / load.chunk_bytes;
    begin();
    if (!sends_) {
        answer("\"waiting\":true");
        while (arrived_ < chunks) poll();
        answer(field("end_ns", nanoseconds(Clock::now())));
        return;
    }
    // Freshly written, as what put() leaves is.
    std::memcpy(memory_.span().data(), source_.span().data(), load.total_bytes);
    const std::size_t in_flight = std::min(kMaxInFlight, connection_.queue_length());
    const auto start = Clock::now();
    for (std::size_t posted = 0; written_ < chunks;) {
        if (posted < chunks && posted - written_ < in_flight &&
            connection_.write(posted * load.chunk_bytes, load.chunk_bytes))
            ++posted;
        else
            poll();
    }
    answer(field("start_ns", nanoseconds(start)));
}

void BareEnd::latency(std::size_t bytes, std::size_t count, const Answer& answer) {
    begin();
    if (!sends_) answer("\"waiting\":true");
    const auto start = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
        if (sends_) post(0, bytes);
        while (arrived_ <= i) poll();
        if (!sends_) post(0, bytes);
    }
    const auto back = Clock::now();
    while (written_ < count) poll();

    // The other question: how long until the sender knows that its write is there?
    const auto first = Clock::now();
    for (std::size_t i = count; sends_ && i < 2 * count; ++i) {
        post(0, bytes);
        while (written_ <= i) poll();
    }
    while (!sends_ && arrived_ < 2 * count) poll();
    const auto last = Clock::now();
    answer(field("round_trips_ns", nanoseconds(back) - nanoseconds(start)) + "," +
           field("delivered_ns", nanoseconds(last) - nanoseconds(first)) + "," +
           field("count", static_cast<std::int64_t>(count)));
}

}  // namespace

std::unique_ptr<End> bare_end(bool sends, const std::string& provider, const std::string& host,
                              std::size_t memory_bytes) {
    return std::make_unique<BareEnd>(sends, provider, host, memory_bytes);
}

}  // namespace lynx::bench
