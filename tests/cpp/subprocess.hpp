// This test binary again, in a process of its own, to be talked to over pipes and killed. Its main() tells by the
// arguments that it is no test run.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

extern char** environ;

namespace lynx::testing {

inline void write_all(int to, const void* data, std::size_t bytes) {
    if (write(to, data, bytes) != static_cast<ssize_t>(bytes)) throw std::runtime_error("short write to a pipe");
}

inline void read_all(int from, void* data, std::size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
        pollfd waiting{from, POLLIN, 0};
        if (poll(&waiting, 1, 30'000) <= 0) throw std::runtime_error("the other process says nothing");
        const ssize_t got = read(from, at, bytes);
        if (got <= 0) throw std::runtime_error("the other process has ended early");
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

/// The destructor kills what is left of it.
class Subprocess {
   public:
    explicit Subprocess(std::vector<std::string> arguments) {
        std::array<int, 2> in{};
        std::array<int, 2> out{};
        if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
        std::string self = "lynx-test-peer";
        std::vector<char*> argv{self.data()};
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        // A session of its own: a stopped process in ours could earn all of us a SIGHUP, should our group be orphaned.
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
        const int failed = posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, argv.data(), environ);
        posix_spawnattr_destroy(&attributes);
        posix_spawn_file_actions_destroy(&actions);
        close(in[0]);
        close(out[1]);
        to_ = in[1];
        from_ = out[0];
        if (failed != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(failed));
    }
    Subprocess(const Subprocess&) = delete;
    Subprocess& operator=(const Subprocess&) = delete;
    ~Subprocess() {
        kill_now();
        close(to_);
        close(from_);
    }

    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    [[nodiscard]] int to() const noexcept { return to_; }      ///< its stdin
    [[nodiscard]] int from() const noexcept { return from_; }  ///< its stdout

    void send_signal(int signal) const {
        if (pid_ > 0) kill(pid_, signal);
    }
    /// Kills it (SIGKILL) and waits until it is gone.
    void kill_now() {
        send_signal(SIGKILL);
        if (pid_ > 0) waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    /// Closes its stdin and waits until it has ended by itself. Returns its exit status.
    int finish() {
        close(to_);
        to_ = -1;
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return status;
    }

   private:
    pid_t pid_ = -1;
    int to_ = -1;
    int from_ = -1;
};

}  // namespace lynx::testing
