// A KV cache from one process to another through the public headers of Lynx, without Python. README.md is the guide.
//
// Exit status: 0 if all went well, 1 for an error (one line on stderr), 2 for a wrong command line, 130 after Ctrl-C.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "child.hpp"
#include "interrupt.hpp"
#include "options.hpp"
#include "roles.hpp"

namespace {

// Both roles on this machine: the prefill side in a second process, the decode side here.
bool run_both(Options options, int argc, char** argv) {
    std::vector<std::string> arguments{"embed_server", "prefill", "--listen", "127.0.0.1:0"};
    arguments.insert(arguments.end(), argv + 1, argv + argc);  // every flag that is allowed here is one of prefill's
    Child prefill(std::move(arguments));

    const std::string greeting = "listening ";
    const auto next_line = [&](lynx::Deadline slice) { return prefill.read_line(slice); };
    const std::string line = *wait_for("the prefill process to listen", kAnswerPatience, next_line);
    if (!line.starts_with(greeting)) throw std::runtime_error("the prefill process said: " + line);
    options.address.port = static_cast<std::uint16_t>(std::stoi(line.substr(greeting.size())));

    const bool good = run_decode(options);
    std::printf("prefill: %s\n", wait_for("the prefill process's summary", kAnswerPatience, next_line)->c_str());
    const int status = *wait_for("the prefill process to end", kAnswerPatience,
                                 [&](lynx::Deadline slice) { return prefill.wait(slice); });
    if (status != 0) throw std::runtime_error("the prefill process ended with status " + std::to_string(status));
    return good;
}

bool run(const Options& options, int argc, char** argv) {
    switch (options.role) {
        case Role::kHelp: std::fputs(kUsage, stdout); return true;
        case Role::kPrefill: run_prefill(options); return true;
        case Role::kDecode: return run_decode(options);
        case Role::kBoth: return run_both(options, argc, argv);
    }
    return false;
}

const char* name_of(Role role) {
    switch (role) {
        case Role::kPrefill: return "embed_server prefill";
        case Role::kDecode: return "embed_server decode";
        default: return "embed_server";
    }
}

}  // namespace

int main(int argc, char** argv) {
    Role role = Role::kBoth;
    try {
        const Options options = parse_options(argc, argv);
        role = options.role;
        catch_interrupts();
        if (run(options, argc, argv)) return 0;
        std::fprintf(stderr, "%s: the decoded cache is further from the sender's than its bits explain\n",
                     name_of(role));
        return 1;
    } catch (const UsageError& error) {
        std::fprintf(stderr, "embed_server: %s (see embed_server --help)\n", error.what());
        return 2;
    } catch (const Interrupted& interrupted) {
        std::fprintf(stderr, "%s: %s\n", name_of(role), interrupted.what());
        return 130;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", name_of(role), error.what());
        return 1;
    }
}
