// A second process of this program.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lynx/deadline.hpp"

/// Runs this executable again with other arguments; its stdout comes here, its stderr goes where ours goes.
class Child {
   public:
    /// Throws std::system_error.
    explicit Child(std::vector<std::string> arguments);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    /// Ends the process if it still runs: by SIGTERM, and if that takes seconds, by SIGKILL.
    ~Child();

    /// The next line it prints; nothing if there is none by the deadline. Throws std::runtime_error once it has
    /// printed its last.
    [[nodiscard]] std::optional<std::string> read_line(lynx::Deadline deadline);
    /// Its exit status (128 + the signal, as shells count it, if one ended it), or nothing if it runs at the deadline.
    [[nodiscard]] std::optional<int> wait(lynx::Deadline deadline);

   private:
    pid_t pid_ = -1;
    int stdout_ = -1;
    std::string unread_;
    std::optional<int> status_;
};
