#include "lynx_end.hpp"

#include <sys/resource.h>

#include <cstring>
#include <ctime>
#include <stdexcept>
#include <thread>

namespace lynx::bench {

namespace {

constexpr std::uint32_t kHeadDim = 128;
constexpr std::size_t kVectorBytes = kHeadDim * 2;
constexpr std::size_t kMaxTensorBytes = std::size_t{256} << 20;

NodeOptions node_options(const LynxOptions& options) {
    NodeOptions node;
    node.fabric.provider = options.provider;
    node.fabric.host = options.host;
    node.arena_bytes = options.memory_bytes + (std::size_t{64} << 20);
    return node;
}

Clock::duration thread_time() {
    timespec at{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec);
}

void finish_sending(Peer& peer, PlaneSender& sender) {
    if (!peer.finish(sender, Deadline::after(kLongest))) throw std::runtime_error("the receiver never confirmed");
}

/// The progress thread may hold a transfer a moment longer than its owner. All are to use the same memory, which the
/// first has touched.
void wait_until_free(const Node& node) {
    const Deadline deadline = Deadline::after(kLongest);
    while (node.arena_free_bytes() < node.arena_bytes()) {
        if (deadline.passed()) throw std::runtime_error("a finished transfer has kept its slot");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

LynxEnd::LynxEnd(bool sends, const LynxOptions& options)
    : sends_(sends), checksums_(options.checksums), host_(options.host), node_(node_options(options)) {
    // On a link of its own there is nobody to keep out, and what a key costs is not what is measured.
    if (!sends_) listener_.emplace(node_, host_, std::uint16_t{0}, ListenOptions{.allow_unauthenticated = true});
}

std::string LynxEnd::endpoint() {
    return listener_ ? host_ + ":" + std::to_string(listener_->port()) : "-";
}

void LynxEnd::connect(const std::string& endpoint) {
    if (listener_) {
        peer_ = listener_->accept(Deadline::after(kLongest));
        return;
    }
    const std::size_t colon = endpoint.rfind(':');
    if (colon == std::string::npos) throw std::runtime_error("no endpoint: " + endpoint);
    const auto port = static_cast<std::uint16_t>(std::stoul(endpoint.substr(colon + 1)));
    peer_ = Peer::connect(node_, endpoint.substr(0, colon), port, Deadline::after(kLongest));
}

Peer& LynxEnd::peer() {
    if (!peer_) throw std::runtime_error("there is no peer yet");
    return *peer_;
}

Manifest LynxEnd::manifest(std::size_t tensors, std::size_t tensor_bytes, std::size_t chunk_bytes, bool residual) {
    if (tensor_bytes % kVectorBytes != 0) throw std::runtime_error("tensors are multiples of 256 bytes");
    Manifest made;
    made.request_id = next_request_++;
    made.chunk_bytes = static_cast<std::uint32_t>(chunk_bytes);
    made.parts = residual ? 2 : 1;
    made.checksums = checksums_;
    made.context_tokens = static_cast<std::uint32_t>(tensor_bytes / kVectorBytes);
    for (std::size_t i = 0; i < tensors; ++i) {
        ManifestTensor tensor;
        tensor.layer = static_cast<std::uint32_t>(i);
        tensor.spec.coding = residual ? Coding::kPlanes : Coding::kRaw;
        tensor.spec.anchor_bits = 1;
        tensor.spec.heads = 1;
        tensor.spec.tokens = made.context_tokens;
        tensor.spec.head_dim = kHeadDim;
        made.tensors.push_back(tensor);
    }
    return made;
}

TensorView LynxEnd::source(const Manifest& manifest, std::size_t tensor) {
    const TensorSpec& spec = manifest.tensors.at(tensor).spec;
    const std::size_t bytes = spec.tokens * kVectorBytes;
    if (source_.size() < bytes) {
        source_ = Buffer(bytes);
        std::memset(source_.span().data(), 0x3c, bytes);  // ordinary bf16 numbers
    }
    const std::array<std::int64_t, 3> shape = {1, spec.tokens, kHeadDim};
    return {source_.span().data(), DType::kBF16, shape, contiguous_strides(shape)};
}

PlaneReceiver LynxEnd::next_offer() {
    auto receiver = peer().accept_offer(Deadline::after(kLongest));
    if (!receiver) throw std::runtime_error("no offer came");
    return std::move(*receiver);
}

void LynxEnd::goodput(const Load& load, const Answer& answer) {
    const std::string times = sends_ ? send(load) : receive(answer);
    wait_until_free(node_);
    answer(times);
}

std::string LynxEnd::receive(const Answer& answer) {
    answer("\"waiting\":true");
    PlaneReceiver receiver = next_offer();
    const bool complete = receiver.wait(0, Deadline::after(kLongest));
    const auto end = Clock::now();
    if (!complete) throw std::runtime_error("the transfer did not come in");
    peer().finish(receiver);
    return field("end_ns", nanoseconds(end));
}

std::string LynxEnd::send(const Load& load) {
    const std::size_t tensor_bytes = std::min(load.total_bytes, kMaxTensorBytes);
    const Manifest what = manifest(load.total_bytes / tensor_bytes, tensor_bytes, load.chunk_bytes);
    const TensorView view = source(what, 0);
    PlaneSender sender = peer().offer(what, Deadline::after(kLongest));
    // Coding is not to count: the clock starts where put() has copied the first tensor, whose chunks it queues all at
    // once. That moment is not seen from here, and the progress thread may take the core before put() returns. So it
    // is put()'s begin and the processor time that this thread has spent in it, which is never later.
    const auto begin = Clock::now();
    const auto time_at_begin = thread_time();
    sender.put(0, TensorRole::kKey, view);
    const auto start = begin + (thread_time() - time_at_begin);
    const auto returned = Clock::now();
    for (std::size_t i = 1; i < what.tensors.size(); ++i)
        sender.put(static_cast<std::uint32_t>(i), TensorRole::kKey, source(what, i));
    finish_sending(peer(), sender);
    return field("start_ns", nanoseconds(start)) + "," + field("put_returned_ns", nanoseconds(returned));
}

void LynxEnd::latency(std::size_t bytes, std::size_t count, const Answer& answer) {
    // Each way is one transfer of `count` tensors, so that no hand-shake is within a round trip.
    if (!sends_) answer("\"waiting\":true");
    const Manifest what = manifest(count, bytes, std::max<std::size_t>(bytes, kMinChunkBytes));
    std::optional<PlaneSender> sender;
    if (sends_) sender = peer().offer(what, Deadline::after(kLongest));
    PlaneReceiver receiver = next_offer();
    if (!sends_) sender = peer().offer(what, Deadline::after(kLongest));
    const TensorView view = source(what, 0);

    const auto start = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
        const auto layer = static_cast<std::uint32_t>(i);
        if (sends_) sender->put(layer, TensorRole::kKey, view);
        if (!receiver.wait(layer, 0, Deadline::after(kLongest))) throw std::runtime_error("a write did not come in");
        if (!sends_) sender->put(layer, TensorRole::kKey, view);
    }
    const auto back = Clock::now();
    peer().finish(receiver);
    finish_sending(peer(), *sender);
    answer(field("round_trips_ns", nanoseconds(back) - nanoseconds(start)) + "," +
           field("count", static_cast<std::int64_t>(count)));
}

}  // namespace lynx::bench
