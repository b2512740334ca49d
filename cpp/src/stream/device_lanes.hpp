// Two streams of a device, each with a buffer there, used in turn: while the one copies, the other computes.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "lynx/device.hpp"

namespace lynx {

/// run() may be called from any thread.
class DeviceLanes {
   public:
    explicit DeviceLanes(std::shared_ptr<Device> device);
    /// Waits for what is on the lanes.
    ~DeviceLanes();
    DeviceLanes(const DeviceLanes&) = delete;
    DeviceLanes& operator=(const DeviceLanes&) = delete;

    /// Queues work; `staging` is memory of the device, of as many bytes as were asked for, that is this job's alone.
    using Start = std::function<void(DeviceStream& stream, ByteSpan staging)>;
    /// Is called on the lanes' own thread once that work has ended, well or with an error, in the order of the calls
    /// of run(). It may queue more and wait for it. It does not throw. What it holds is let go before the lane is free.
    using Finish = std::function<void(DeviceStream& stream, ByteSpan staging, const DeviceOutcome& outcome,
                                      const std::exception_ptr& error)>;
    /// Waits for a free lane, and returns once the work is queued. Throws what `start` throws, ArenaFull, CudaError;
    /// then `finish` is not called, and nothing runs any more on what was queued.
    void run(std::size_t staging_bytes, const Start& start, Finish finish);

   private:
    struct Lane {
        std::unique_ptr<DeviceStream> stream;
        std::unique_ptr<DeviceMemory> staging;
        bool busy = false;
    };
    struct Job {
        Lane* lane;
        ByteSpan staging;
        Finish finish;
    };
    [[nodiscard]] Lane& take_lane();
    void leave(Lane& lane);
    [[nodiscard]] ByteSpan prepare(Lane& lane, std::size_t staging_bytes);
    void finish_jobs(const std::stop_token& asked_to_stop);

    const std::shared_ptr<Device> device_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    // Guarded by mutex_, but for a busy lane's insides.
    std::array<Lane, 2> lanes_;
    std::size_t next_ = 0;
    std::deque<Job> jobs_;

    std::jthread thread_;  // last: stops before anything else goes
};

}  // namespace lynx
