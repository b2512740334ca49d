#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lynx/deadline.hpp"
#include "lynx/error.hpp"
#include "lynx/executor.hpp"

namespace lynx {
namespace {

using namespace std::chrono_literals;

bool becomes_true(const auto& condition) {
    const Deadline deadline = Deadline::after(10s);
    while (!condition()) {
        if (deadline.passed()) return false;
        std::this_thread::yield();
    }
    return true;
}

/// Threads that pools of this process have now. One that was joined may be listed for a moment longer.
std::size_t pool_threads() {
    std::size_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        count += name == "lynx pool";
    }
    return count;
}

TEST(ThreadPool, RunsEveryTaskOnce) {
    for (const unsigned threads : {1u, 2u, 3u, 8u}) {
        ThreadPool pool(threads);
        EXPECT_EQ(pool.concurrency(), threads);
        for (const std::size_t tasks : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 1000u}) {
            std::vector<int> calls(tasks, 0);  // plain ints: what tasks write can be read after run()
            pool.run(tasks, [&](std::size_t i) noexcept { ++calls[i]; });
            EXPECT_EQ(calls, std::vector<int>(tasks, 1)) << threads << " threads, " << tasks << " tasks";
        }
    }
}

TEST(ThreadPool, RunsTasksAtTheSameTime) {
    ThreadPool pool(3);
    std::atomic<unsigned> begun{0};
    std::atomic<unsigned> met{0};
    pool.run(3, [&](std::size_t) noexcept {
        ++begun;
        met += becomes_true([&] { return begun == 3; });
    });
    EXPECT_EQ(met, 3u);
}

TEST(ThreadPool, OfOneThreadWorksOnTheCallers) {
    ThreadPool pool(1);
    std::vector<std::thread::id> ids(5);
    pool.run(5, [&](std::size_t i) noexcept { ids[i] = std::this_thread::get_id(); });
    EXPECT_EQ(ids, std::vector<std::thread::id>(5, std::this_thread::get_id()));
}

TEST(ThreadPool, MayBeSharedBySeveralCallers) {
    ThreadPool pool(3);
    std::vector<std::size_t> sums(4, 0);
    {
        std::vector<std::jthread> callers;
        callers.reserve(sums.size());
        for (std::size_t& sum : sums)
            callers.emplace_back([&] {
                for (int round = 0; round < 200; ++round) {
                    std::vector<std::size_t> squares(50);
                    pool.run(50, [&](std::size_t i) noexcept { squares[i] = i * i; });
                    for (const std::size_t square : squares) sum += square;
                }
            });
    }
    EXPECT_EQ(sums, std::vector<std::size_t>(4, std::size_t{200} * 40425));  // 0 + 1 + 4 + ... + 49 * 49
}

TEST(ThreadPool, ACallerDoesNotWaitForTheTasksOfAnother) {
    ThreadPool pool(2);
    std::atomic<unsigned> held{0};
    std::atomic<bool> release{false};
    std::jthread other([&] {
        pool.run(2, [&](std::size_t) noexcept {
            ++held;
            (void)becomes_true([&] { return release.load(); });
        });
    });
    ASSERT_TRUE(becomes_true([&] { return held == 2; }));  // the whole pool is busy
    std::atomic<unsigned> done{0};
    pool.run(10, [&](std::size_t) noexcept { ++done; });
    EXPECT_EQ(done, 10u);
    release = true;
}

TEST(ThreadPool, ATaskMayRunTasks) {
    ThreadPool pool(3);
    std::vector<std::vector<int>> calls(5, std::vector<int>(5, 0));
    pool.run(5, [&](std::size_t outer) noexcept {
        pool.run(5, [&](std::size_t inner) noexcept { ++calls[outer][inner]; });
    });
    EXPECT_EQ(calls, std::vector<std::vector<int>>(5, std::vector<int>(5, 1)));
}

TEST(ThreadPool, EndsItsThreads) {
    for (int round = 0; round < 20; ++round) {
        {
            ThreadPool pool(4);
            if (round % 2 == 0) pool.run(4, [](std::size_t) noexcept {});
            EXPECT_TRUE(becomes_true([] { return pool_threads() == 3; }));
        }
        EXPECT_TRUE(becomes_true([] { return pool_threads() == 0; }));
    }
    for (int round = 0; round < 100; ++round) ThreadPool pool(4);  // ended before its threads have begun to wait
}

TEST(ThreadPool, RefusesACountThatCannotBeMeant) {
    for (const unsigned threads : {0u, ThreadPool::kMaxThreads + 1, ~0u}) {
        try {
            const ThreadPool pool(threads);
            ADD_FAILURE() << threads << " threads were taken";
        } catch (const InvalidArgument& e) {
            EXPECT_NE(std::string(e.what()).find("threads is " + std::to_string(threads)), std::string::npos);
        }
    }
}

TEST(Task, IsMadeOfFunctionsThatCannotThrow) {
    const auto quiet = [](std::size_t) noexcept {};
    const auto loud = [](std::size_t) {};
    EXPECT_TRUE((std::is_convertible_v<decltype(quiet), Task>));
    EXPECT_FALSE((std::is_convertible_v<decltype(loud), Task>));
}

}  // namespace
}  // namespace lynx
