#include "stream/device_lanes.hpp"

#include <algorithm>

namespace lynx {

DeviceLanes::DeviceLanes(std::shared_ptr<Device> device)
    : device_(std::move(device)), thread_([this](const std::stop_token& stop) { finish_jobs(stop); }) {}

DeviceLanes::~DeviceLanes() = default;

DeviceLanes::Lane& DeviceLanes::take_lane() {
    std::unique_lock lock(mutex_);
    Lane* free = nullptr;
    changed_.wait(lock, [&] {
        // In turn, so that the next job finds the lane that has been at work the longest.
        for (std::size_t i = 0; i < lanes_.size() && free == nullptr; ++i) {
            const std::size_t at = (next_ + i) % lanes_.size();
            if (lanes_.at(at).busy) continue;
            free = &lanes_.at(at);
            next_ = at + 1;
        }
        return free != nullptr;
    });
    free->busy = true;
    return *free;
}

void DeviceLanes::leave(Lane& lane) {
    const std::lock_guard lock(mutex_);
    lane.busy = false;
    changed_.notify_all();
}

ByteSpan DeviceLanes::prepare(Lane& lane, std::size_t staging_bytes) {
    if (lane.stream == nullptr) lane.stream = device_->open_stream();
    if (staging_bytes == 0) return {};
    if (lane.staging == nullptr || lane.staging->span().size() < staging_bytes) {
        lane.staging.reset();  // first, so that both need not fit
        lane.staging = device_->allocate(MemoryKind::kCuda, staging_bytes);
    }
    return lane.staging->span().first(staging_bytes);
}

void DeviceLanes::run(std::size_t staging_bytes, const Start& start, Finish finish) {
    Lane& lane = take_lane();
    try {
        const ByteSpan staging = prepare(lane, staging_bytes);
        start(*lane.stream, staging);
        const std::lock_guard lock(mutex_);
        jobs_.push_back({&lane, staging, std::move(finish)});
        changed_.notify_all();
    } catch (...) {
        // Some of it may be queued, and reads or writes the caller's memory.
        try {
            if (lane.stream != nullptr) (void)lane.stream->wait();
        } catch (...) {  // NOLINT(bugprone-empty-catch): the first error is the one to tell
        }
        leave(lane);
        throw;
    }
}

void DeviceLanes::finish_jobs(const std::stop_token& asked_to_stop) {
    for (;;) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, asked_to_stop, [&] { return !jobs_.empty(); });
        if (jobs_.empty()) return;
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        DeviceOutcome outcome;
        std::exception_ptr error;
        try {
            outcome = job.lane->stream->wait();
        } catch (...) {
            error = std::current_exception();
        }
        job.finish(*job.lane->stream, job.staging, outcome, error);
        job.finish = nullptr;
        leave(*job.lane);
    }
}

}  // namespace lynx
