// Where work runs that can be cut into pieces: on a pool of Lynx's own, or on the embedder's.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "lynx/export.hpp"

namespace lynx {

/// A function of a task's index, by reference: it owns nothing, so that handing work over allocates nothing. The
/// function has to be noexcept and to outlive the call that it is passed to.
class Task {
   public:
    template <class Function>
        requires(!std::same_as<Function, Task> && std::is_nothrow_invocable_v<const Function&, std::size_t>)
    Task(const Function& function) noexcept
        : function_(&function),
          call_([](const void* f, std::size_t index) noexcept { (*static_cast<const Function*>(f))(index); }) {}

    void operator()(std::size_t index) const noexcept { call_(function_, index); }

   private:
    const void* function_;
    void (*call_)(const void*, std::size_t) noexcept;
};

/// Threads that somebody owns, with stacks of 256 KiB or more: the codec's kernels take up to 110 KiB. An embedder
/// implements it over the pool that he has; ThreadPool is one ready made. Whoever is given an Executor only borrows it
/// for the call.
class LYNX_API Executor {
   public:
    virtual ~Executor();

    /// Calls task(0) ... task(tasks - 1), each once, in any order, on any threads, and returns when all of them have
    /// ended and what they wrote can be read. The tasks are independent: one by one on the caller's thread is right
    /// too. May be called from several threads at once. If it throws, no task may be running any more or start later.
    virtual void run(std::size_t tasks, Task task) = 0;

   protected:
    Executor() noexcept = default;
    Executor(const Executor&) = default;
    Executor& operator=(const Executor&) = default;
};

/// Threads that are started once, sleep while there is nothing to do, and end with the pool.
class LYNX_API ThreadPool final : public Executor {
   public:
    static constexpr unsigned kMaxThreads = 1024;

    /// `threads` is how many work on a run, the thread that calls run() being one of them: 1 starts none. Throws
    /// InvalidArgument unless it is 1 to kMaxThreads, std::system_error if the system refuses a thread.
    explicit ThreadPool(unsigned threads);
    /// No run() may be going on.
    ~ThreadPool() override;
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    /// How many threads work on a run, the caller's included.
    [[nodiscard]] unsigned concurrency() const noexcept;

    /// Allocates nothing and throws nothing. The caller's thread works too. Runs that are called at once share the
    /// pool: its threads help the one that came first, each caller works on its own, so none waits for another's
    /// tasks. A task may itself call run().
    void run(std::size_t tasks, Task task) noexcept override;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lynx
