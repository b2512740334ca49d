// A handler for tests: a queue of writes to post, and a record of all that happened, to wait on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "lynx/error.hpp"
#include "lynx/fabric.hpp"

namespace lynx::testing {

class Recorder final : public EndpointHandler {
   public:
    void on_arrival(std::uint32_t tag) noexcept override {
        const std::scoped_lock lock(mutex_);
        ++arrivals_[tag];
        ++arrived_;
        changed_.notify_all();
    }
    const Write* next_write(Clock::time_point now, Clock::time_point& retry_at) noexcept override {
        const std::scoped_lock lock(mutex_);
        if (queue_.empty()) return nullptr;
        if (now < not_before_) {
            retry_at = not_before_;
            return nullptr;
        }
        return &queue_.front();
    }
    void on_posted() noexcept override {
        const std::scoped_lock lock(mutex_);
        queue_.pop_front();
    }
    void on_written(std::uint64_t cookie) noexcept override {
        const std::scoped_lock lock(mutex_);
        ++written_[cookie];
        ++done_;
        changed_.notify_all();
    }
    void on_write_failed(std::uint64_t cookie, std::exception_ptr error) noexcept override {
        const std::scoped_lock lock(mutex_);
        if (!queue_.empty() && queue_.front().cookie == cookie) queue_.pop_front();
        try {
            std::rethrow_exception(error);
        } catch (const Timeout& e) {
            record_failure("Timeout", e.what());
        } catch (const PeerLost& e) {
            record_failure("PeerLost", e.what());
        } catch (const FabricError& e) {
            record_failure("FabricError", e.what());
        } catch (...) {
            record_failure("other", "");
        }
        changed_.notify_all();
    }

    void push(const Write& write) {
        const std::scoped_lock lock(mutex_);
        queue_.push_back(write);
    }
    void hold_until(Clock::time_point at) {
        const std::scoped_lock lock(mutex_);
        not_before_ = at;
    }

    struct Failure {
        std::string type;
        std::string message;
    };

    bool wait_arrivals(std::size_t count, Clock::duration at_most) {
        return wait([&] { return arrived_ >= count; }, at_most);
    }
    bool wait_done(std::size_t count, Clock::duration at_most) {
        return wait([&] { return done_ >= count; }, at_most);
    }
    bool wait_failures(std::size_t count, Clock::duration at_most) {
        return wait([&] { return failures_.size() >= count; }, at_most);
    }
    /// Everything pushed has been written or has failed.
    bool wait_settled(std::size_t count, Clock::duration at_most) {
        return wait([&] { return done_ + failures_.size() >= count; }, at_most);
    }

    std::size_t arrived() const { return locked(arrived_); }
    std::map<std::uint32_t, int> arrivals() const { return locked(arrivals_); }
    std::map<std::uint64_t, int> written() const { return locked(written_); }
    std::vector<Failure> failures() const { return locked(failures_); }

   private:
    template <class T>
    T locked(const T& value) const {
        const std::scoped_lock lock(mutex_);
        return value;
    }
    template <class Predicate>
    bool wait(Predicate predicate, Clock::duration at_most) {
        std::unique_lock lock(mutex_);
        return changed_.wait_until(lock, Clock::now() + at_most, predicate);
    }
    void record_failure(const char* type, const char* message) { failures_.push_back({type, message}); }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Write> queue_;
    Clock::time_point not_before_{};
    std::map<std::uint32_t, int> arrivals_;
    std::map<std::uint64_t, int> written_;
    std::vector<Failure> failures_;
    std::size_t arrived_ = 0;
    std::size_t done_ = 0;
};

}  // namespace lynx::testing
