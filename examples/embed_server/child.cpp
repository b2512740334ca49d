#include "child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace {

void check(int error, const char* what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

Child::Child(std::vector<std::string> arguments) {
    std::array<int, 2> pipe{};
    check(pipe2(pipe.data(), O_CLOEXEC) == 0 ? 0 : errno, "cannot make a pipe");
    stdout_ = pipe[0];

    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    // A process group of its own: the terminal's Ctrl-C reaches the parent alone, which then ends the child in order.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe[1]);  // or the end of the child's output would never show
    if (error != 0) close(stdout_);
    check(error, "cannot start a second process");
}

Child::~Child() {
    constexpr std::chrono::seconds kPatience{10};
    if (!status_) {
        kill(pid_, SIGTERM);
        if (!wait(lynx::Deadline::after(kPatience))) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }
    close(stdout_);
}

std::optional<std::string> Child::read_line(lynx::Deadline deadline) {
    while (true) {
        if (const auto end = unread_.find('\n'); end != std::string::npos) {
            std::string line = unread_.substr(0, end);
            unread_.erase(0, end + 1);
            return line;
        }
        pollfd ready{.fd = stdout_, .events = POLLIN, .revents = 0};
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
        if (poll(&ready, 1, static_cast<int>(left)) <= 0) return std::nullopt;  // or a signal: the caller looks
        std::array<char, 256> buffer{};
        const ssize_t bytes = read(stdout_, buffer.data(), buffer.size());
        if (bytes <= 0) throw std::runtime_error("the prefill process ended early");
        unread_.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
}

std::optional<int> Child::wait(lynx::Deadline deadline) {
    constexpr std::chrono::milliseconds kLook{5};
    while (!status_) {
        int status = 0;
        if (waitpid(pid_, &status, WNOHANG) == pid_) {
            status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        } else if (deadline.passed()) {
            return std::nullopt;
        } else {
            std::this_thread::sleep_for(kLook);
        }
    }
    return status_;
}
