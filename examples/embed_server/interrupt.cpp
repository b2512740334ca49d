#include "interrupt.hpp"

#include <csignal>

namespace {

// The one global: a signal handler can reach nothing else.
volatile std::sig_atomic_t interrupted = 0;

extern "C" void on_signal(int /*signal*/) {
    interrupted = 1;
}

}  // namespace

void catch_interrupts() {
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

void throw_if_interrupted() {
    if (interrupted != 0) throw Interrupted();
}
