// lynx_bench_fabric bare|lynx send|receive PROVIDER HOST MEMORY_BYTES [no-checksums]
//
// One end of a transfer; reads commands from the standard input until it ends (end.hpp). `python -m bench.fabric` runs
// two of them. By hand: the first line that each prints has its endpoint, which the other's `peer` command takes.
#include <sys/prctl.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "bare.hpp"
#include "end.hpp"
#include "lynx_end.hpp"

namespace {

using lynx::bench::End;

void answer(const std::string& fields) {
    std::cout << '{' << fields << '}' << std::endl;
}

/// In JSON's quotes.
std::string quoted(const std::string& words) {
    std::string out = "\"";
    for (const char c : words) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + '"';
}

template <class... Number>
void read(std::istringstream& line, Number&... numbers) {
    if (!(line >> ... >> numbers)) throw std::runtime_error("a command without its numbers: " + line.str());
}

void obey(End& end, const std::string& command) {
    std::istringstream line(command);
    std::string word;
    line >> word;
    if (word == "peer") {
        std::string endpoint;
        read(line, endpoint);
        end.connect(endpoint);
        answer("\"connected\":true");
    } else if (word == "goodput") {
        lynx::bench::Load load;
        read(line, load.chunk_bytes, load.total_bytes);
        end.goodput(load, answer);
    } else if (word == "latency") {
        std::size_t bytes = 0;
        std::size_t count = 0;
        read(line, bytes, count);
        end.latency(bytes, count, answer);
    } else if (word == "contend") {
        lynx::bench::Contention contention;
        read(line, contention.backlogs, contention.backlog_bytes, contention.anchor_bytes, contention.anchors);
        end.contend(contention, answer);
    } else {
        throw std::runtime_error("unknown command: " + command);
    }
}

std::unique_ptr<End> make_end(int argc, char** argv) {
    if (argc < 6)
        throw std::runtime_error(
            "usage: lynx_bench_fabric bare|lynx send|receive PROVIDER HOST MEMORY_BYTES [no-checksums]");
    const std::string kind = argv[1];
    const bool sends = std::string(argv[2]) == "send";
    const std::size_t memory_bytes = std::stoull(argv[5]);
    if (kind == "bare") return lynx::bench::bare_end(sends, argv[3], argv[4], memory_bytes);
    if (kind != "lynx") throw std::runtime_error("neither bare nor lynx: " + kind);
    const bool checksums = argc <= 6 || std::string(argv[6]) != "no-checksums";
    return std::make_unique<lynx::bench::LynxEnd>(sends,
                                                  lynx::bench::LynxOptions{argv[3], argv[4], memory_bytes, checksums});
}

}  // namespace

int main(int argc, char** argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // Whatever ends the driver ends its ends.
    std::signal(SIGINT, SIG_IGN);      // Ctrl-C is the driver's to handle: it closes the standard input.
    try {
        const std::unique_ptr<End> end = make_end(argc, argv);
        answer("\"endpoint\":" + quoted(end->endpoint()));
        for (std::string command; std::getline(std::cin, command);) obey(*end, command);
        std::cout.flush();
        return 0;
    } catch (const std::exception& e) {
        answer("\"error\":" + quoted(e.what()));
        return 1;
    }
}
