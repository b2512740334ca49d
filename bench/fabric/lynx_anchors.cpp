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

/// What is not written yet of one part of all of them.
std::uint64_t left_of(const std::vector<PlaneSender>& backlogs, std::size_t part) {
    std::uint64_t left = 0;
    for (const PlaneSender& sender : backlogs) {
        const SendProgress now = sender.progress();
        left += now.part_bytes[part] - now.written_bytes[part];
    }
    return left;
}

/// Waits until only residuals are left of the backlogs, and these fill what lies between both ends. If a quarter of
/// them has overtaken the backlogs' own anchors, that is not waited for: the measured anchor is to find residuals.
void saturate(const std::vector<PlaneSender>& backlogs) {
    const Deadline deadline = Deadline::after(kLongest);
    const std::uint64_t residual_bytes = left_of(backlogs, 1);
    while (left_of(backlogs, 0) > 0 && left_of(backlogs, 1) > residual_bytes / 4 * 3) {
        if (deadline.passed()) throw std::runtime_error("the backlogs do not move");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!backlogs.empty()) std::this_thread::sleep_for(kToSaturate);
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
        const std::uint64_t left_before = left_of(backlogs, 1);
        const Manifest what = manifest(1, contention.anchor_bytes, kChunkBytes);
        const TensorView view = source(what, 0);
        const auto offered = Clock::now();
        PlaneSender sender = peer().offer(what, Deadline::after(kLongest));
        const auto put = Clock::now();
        sender.put(0, TensorRole::kKey, view);
        if (!peer().finish(sender, Deadline::after(kLongest))) throw std::runtime_error("an anchor did not come in");
        const std::uint64_t left = left_of(backlogs, 1);
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
