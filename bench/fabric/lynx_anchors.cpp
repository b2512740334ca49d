// Anchors among residual backlogs of other requests, between one pair of nodes.
#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lynx_end.hpp"

namespace lynx::bench {

namespace {

const std::size_t kChunkBytes = Manifest{}.chunk_bytes;
constexpr auto kToSaturate = std::chrono::milliseconds(200);
constexpr auto kBetweenAnchors = std::chrono::milliseconds(50);
/// Of the 16 bits of a bf16 value, those in the residual of an anchor of one plane.
constexpr std::size_t kSourceBits = 16;
constexpr std::size_t kResidualBits = 7;
constexpr std::size_t kBacklogTensorBytes = std::size_t{32} << 20;

std::uint64_t residual_left(const std::vector<PlaneSender>& backlogs) {
    std::uint64_t left = 0;
    for (const PlaneSender& sender : backlogs) {
        const SendProgress now = sender.progress();
        left += now.part_bytes[1] - now.written_bytes[1];
    }
    return left;
}

/// Waits until residuals are on their way, which are the last to go, and have filled what lies between both ends.
void saturate(const std::vector<PlaneSender>& backlogs) {
    const Deadline deadline = Deadline::after(kLongest);
    const auto flows = [](const PlaneSender& sender) { return sender.progress().written_bytes[1] > 0; };
    while (std::none_of(backlogs.begin(), backlogs.end(), flows)) {
        if (backlogs.empty()) return;
        if (deadline.passed()) throw std::runtime_error("the backlogs do not move");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(kToSaturate);
}

}  // namespace

void LynxEnd::contend(const Contention& contention, const Answer& answer) {
    if (!sends_) {
        receive_contention(contention, answer);
        return;
    }
    const std::size_t source_bytes = contention.backlog_bytes * kSourceBits / kResidualBits;
    const std::size_t tensors = (source_bytes + kBacklogTensorBytes - 1) / kBacklogTensorBytes;
    std::vector<PlaneSender> backlogs;
    for (std::size_t i = 0; i < contention.backlogs; ++i)
        backlogs.push_back(peer().offer(manifest(tensors, source_bytes / tensors / 256 * 256, kChunkBytes, true),
                                        Deadline::after(kLongest)));
    for (PlaneSender& sender : backlogs)
        for (std::size_t t = 0; t < tensors; ++t)
            sender.put(static_cast<std::uint32_t>(t), TensorRole::kKey, source(sender.manifest(), t));
    saturate(backlogs);

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
