// Ctrl-C, and waits that hear it.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include "lynx/deadline.hpp"
#include "lynx/error.hpp"

/// SIGINT or SIGTERM came. Thrown from waits, so that destructors run: a node that is closed in order leaves neither
/// sockets nor files in /dev/shm.
class Interrupted : public std::exception {
   public:
    [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// From here on the first SIGINT or SIGTERM is remembered; a second one ends the process at once.
void catch_interrupts();
/// Throws Interrupted once a signal has come.
void throw_if_interrupted();

/// Repeats `attempt`, any Lynx call that answers false or nothing at the deadline it is given, in short slices. Throws
/// lynx::Timeout naming `what` once `patience` has passed with `progress()` unchanged: slow is not stuck.
template <class Attempt, class Progress>
auto wait_for(const std::string& what, lynx::Clock::duration patience, Attempt attempt, Progress progress) {
    constexpr lynx::Clock::duration kSlice = std::chrono::milliseconds(100);
    auto deadline = lynx::Deadline::after(patience);
    for (auto seen = progress();;) {
        throw_if_interrupted();
        if (auto result = attempt(lynx::Deadline::after(std::min(deadline.left(), kSlice)))) return result;
        if (deadline.passed()) {
            const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience).count();
            throw lynx::Timeout("waited " + std::to_string(seconds) + " s in vain for " + what);
        }
        if (auto now = progress(); now != seen) {
            seen = now;
            deadline = lynx::Deadline::after(patience);
        }
    }
}

/// The same for what makes no progress that could be seen.
template <class Attempt>
auto wait_for(const std::string& what, lynx::Clock::duration patience, Attempt attempt) {
    return wait_for(what, patience, attempt, [] { return 0; });
}
