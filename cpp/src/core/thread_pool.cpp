#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "lynx/executor.hpp"

namespace lynx {

Executor::~Executor() = default;

namespace {

/// One call of run(). It lies on its caller's stack, so it has to stay until the last helper has left it.
struct Run {
    Run(std::size_t task_count, Task function) noexcept : tasks(task_count), task(function) {}

    const std::size_t tasks;
    const Task task;
    std::atomic<std::size_t> next{0};  ///< the first task that nobody has taken
    Run* following = nullptr;          ///< the run that came next
    unsigned helpers = 0;              ///< threads of the pool at work on it
    std::condition_variable left;      ///< the last helper has left

    [[nodiscard]] bool has_tasks() const noexcept { return next.load(std::memory_order_relaxed) < tasks; }

    void work() noexcept {
        for (;;) {
            const std::size_t index = next.fetch_add(1, std::memory_order_relaxed);
            if (index >= tasks) return;
            task(index);
        }
    }
};

}  // namespace

struct ThreadPool::State {
    std::mutex mutex;  // of all below, and of each Run's following and helpers
    std::condition_variable_any wake;
    Run* first = nullptr;               // the runs going on, the oldest first
    std::vector<std::jthread> helpers;  // the last member: ends before what the threads use

    [[nodiscard]] Run* with_tasks() const noexcept {
        for (Run* run = first; run != nullptr; run = run->following)
            if (run->has_tasks()) return run;
        return nullptr;
    }

    void add(Run& run) noexcept {
        Run** end = &first;
        while (*end != nullptr) end = &(*end)->following;
        *end = &run;
    }

    void remove(const Run& run) noexcept {
        Run** at = &first;
        while (*at != &run) at = &(*at)->following;
        *at = run.following;
    }

    void help(const std::stop_token& stop) {
        ::pthread_setname_np(::pthread_self(), "lynx pool");  // for those who look with top or a debugger
        std::unique_lock lock(mutex);
        Run* run = nullptr;
        while (wake.wait(lock, stop, [&] { return (run = with_tasks()) != nullptr; })) {
            ++run->helpers;
            lock.unlock();
            run->work();
            lock.lock();
            // Under the lock: once the caller has it, the run may be gone.
            if (--run->helpers == 0) run->left.notify_one();
        }
    }
};

ThreadPool::ThreadPool(unsigned threads) : state_(std::make_unique<State>()) {
    if (threads < 1 || threads > kMaxThreads)
        throw InvalidArgument(text("ThreadPool: threads is ", threads, "; it has to be 1 to ", kMaxThreads));
    state_->helpers.reserve(threads - 1);
    for (unsigned i = 1; i < threads; ++i)
        state_->helpers.emplace_back([state = state_.get()](const std::stop_token& stop) { state->help(stop); });
}

ThreadPool::~ThreadPool() = default;

unsigned ThreadPool::concurrency() const noexcept {
    return static_cast<unsigned>(state_->helpers.size()) + 1;
}

void ThreadPool::run(std::size_t tasks, Task task) noexcept {
    Run run(tasks, task);
    const std::size_t wanted = std::min(state_->helpers.size(), tasks - std::min<std::size_t>(tasks, 1));
    if (wanted == 0) return run.work();
    {
        const std::lock_guard lock(state_->mutex);
        state_->add(run);
    }
    for (std::size_t i = 0; i < wanted; ++i) state_->wake.notify_one();
    run.work();
    std::unique_lock lock(state_->mutex);
    state_->remove(run);  // from here on no helper comes
    run.left.wait(lock, [&] { return run.helpers == 0; });
}

}  // namespace lynx
