// Anchors among residual backlogs of other requests, between one pair of nodes.
#include <stdexcept>
#include <thread>
#include <vector>

#include "lynx_end.hpp"

namespace lynx::bench {

namespace {

constexpr std::size_t kChunkBytes = Manifest{}.chunk_bytes;
constexpr auto kToSaturate = std::chrono::milliseconds(300);
constexpr auto kBetweenAnchors = std::chrono::milliseconds(50);
/// The residual of a tensor in bf16 whose anchor has one plane: 7 bits of 16.
constexpr std::size_t kSourceBitsPerByte = 16;
constexpr std::size_t kResidualBits = 7;

std::uint64_t residual_left(const std::vector<PlaneSender>& backlogs) {
    std::uint64_t left = 0;
    for (const PlaneSender& sender : backlogs) {
        const SendProgress now = sender.progress();
        left += now.part_bytes[1] - now.written_bytes[1];
    }
    return left;
}

}  // namespace

void LynxEnd::contend(const Contention& contention, const Answer& answer) {
    if (!sends_) {
        receive_contention(contention, answer);
        return;
    }
    const std::size_t source_bytes = contention.backlog_bytes * kSourceBitsPerByte / kResidualBits / 256 * 256;
    std::vector<PlaneSender> backlogs;
    for (std::size_t i = 0; i < contention.backlogs; ++i)
        backlogs.push_back(peer().offer(manifest(1, source_bytes, kChunkBytes, true), Deadline::after(kLongest)));
    for (PlaneSender& sender : backlogs) sender.put(0, TensorRole::kKey, source(sender.manifest(), 0));
    if (!backlogs.empty()) std::this_thread::sleep_for(kToSaturate);

    for (std::size_t i = 0; i < contention.anchors; ++i) {
        const std::uint64_t left_before = residual_left(backlogs);
        const Manifest what = manifest(1, contention.anchor_bytes, kChunkBytes);
        const TensorView view = source(what, 0);
        const auto offered = Clock::now();
        PlaneSender sender = peer().offer(what, Deadline::after(kLongest));
        const auto put = Clock::now();
        sender.put(0, TensorRole::kKey, view);
        if (!peer().finish(sender, Deadline::after(kLongest))) throw std::runtime_error("an anchor did not come in");
        const std::uint64_t left = residual_left(backlogs);
        answer(field("offered_ns", nanoseconds(offered)) + "," + field("put_ns", nanoseconds(put)) + "," +
               field("backlog_before_bytes", static_cast<std::int64_t>(left_before)) + "," +
               field("backlog_left_bytes", static_cast<std::int64_t>(left)));
        std::this_thread::sleep_for(kBetweenAnchors);
    }
    // What is left of the backlogs is of no more use: the driver ends this process.
}

void LynxEnd::receive_contention(const Contention& contention, const Answer& answer) {
    answer("\"waiting\":true");
    std::vector<PlaneReceiver> backlogs;
    for (std::size_t i = 0; i < contention.backlogs; ++i) backlogs.push_back(next_offer());
    for (std::size_t i = 0; i < contention.anchors; ++i) {
        PlaneReceiver receiver = next_offer();
        if (!receiver.wait(0, Deadline::after(kLongest))) throw std::runtime_error("an anchor did not come in");
        const auto end = Clock::now();
        peer().finish(receiver);
        answer(field("end_ns", nanoseconds(end)));
    }
}

}  // namespace lynx::bench
