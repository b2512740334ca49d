// Who comes to a listener is greeted on threads: one that stays silent holds up nobody.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "core/text.hpp"
#include "lynx/error.hpp"
#include "stream/peer_hello.hpp"
#include "stream/peer_impl.hpp"

namespace lynx {

namespace {

constexpr auto kHelloDeadline = std::chrono::seconds(5);
constexpr auto kAcceptSlice = std::chrono::milliseconds(50);
constexpr std::size_t kMaxGreetings = 16;
constexpr std::size_t kMaxReady = 64;  // greeted, and accepted by nobody yet; the others wait in the socket's backlog
constexpr std::size_t kMaxFailures = 16;

}  // namespace

struct Listener::Impl {
    struct Greeting {
        explicit Greeting(ControlChannel c) : channel(std::move(c)) {}
        ControlChannel channel;
        bool over = false;  // guarded by Impl::mutex
        std::jthread thread;
    };

    Impl(const Node& node_, const std::string& host, std::uint16_t port, const ListenOptions& listen_options,
         const PeerOptions& options_)
        : node(node_), options(options_), control(host, port, listen_options) {
        check(options);  // here, and not at each peer that comes
        thread = std::jthread([this](const std::stop_token& stop) { run(stop); });
    }

    ~Impl() {
        thread.request_stop();
        thread.join();
        const std::lock_guard lock(mutex);
        for (Greeting& greeting : greetings)
            if (!greeting.over) greeting.channel.shutdown();
    }

    // On the listener's thread, which alone adds and removes greetings.
    void run(const std::stop_token& stop) noexcept {
        while (!stop.stop_requested()) try {
                const Deadline slice = Deadline::after(kAcceptSlice);
                {
                    std::unique_lock lock(mutex);
                    changed.wait_until(lock, slice.at(), [&] { return ready.size() < kMaxReady; });
                    if (ready.size() >= kMaxReady) continue;
                }
                if (auto channel = control.accept(slice)) greet(std::move(*channel));
                tidy(kMaxGreetings);
            } catch (...) {
                fail(std::current_exception());
                std::this_thread::sleep_for(kAcceptSlice);  // out of descriptors, say: it may get better
            }
    }

    void greet(ControlChannel channel) {
        tidy(kMaxGreetings - 1);
        Greeting& greeting = greetings.emplace_back(std::move(channel));
        greeting.thread = std::jthread([this, &greeting] { say_hello(greeting); });
    }

    // Ends the threads that are through, and, of more than `most`, the oldest: those who mean it are quick.
    void tidy(std::size_t most) {
        std::list<Greeting> through;
        {
            const std::lock_guard lock(mutex);
            for (auto it = greetings.begin(); it != greetings.end();) {
                const auto next = std::next(it);
                if (it->over) through.splice(through.end(), greetings, it);
                it = next;
            }
            while (greetings.size() > most) {
                greetings.front().channel.shutdown();
                through.splice(through.end(), greetings, greetings.begin());
            }
        }
    }

    void say_hello(Greeting& greeting) noexcept {
        try {
            const Deadline deadline = Deadline::after(kHelloDeadline);
            Hello mine = hello_of(node);
            Hello theirs;
            try {
                theirs = receive_hello(greeting.channel, deadline);
            } catch (const ProtocolError&) {
                answer_anyhow(greeting.channel, mine, deadline);
                throw;
            }
            if (theirs.resume) {
                resume(greeting, theirs, mine, deadline);
            } else {
                if (options.reconnect_for > Clock::duration::zero()) mine.session = theirs.session;
                send_hello(greeting.channel, mine, deadline);
                check_provider(theirs, greeting.channel, node);
                introduce(std::make_shared<Peer::Impl>(node, take(greeting), theirs, options,
                                                       LinkSession{.id = mine.session, .redial = {}}));
            }
        } catch (...) {
            node.impl()->metrics.failed_handshakes.add();
            fail(std::current_exception());
        }
        const std::lock_guard lock(mutex);
        greeting.over = true;
    }

    // So that a stranger of another version hears which two they are.
    static void answer_anyhow(ControlChannel& channel, const Hello& mine, Deadline deadline) noexcept {
        try {
            send_hello(channel, mine, deadline);
        } catch (const std::exception&) {
            // What it sent has ended the connection already.
        }
    }

    [[nodiscard]] ControlChannel take(Greeting& greeting) {
        const std::lock_guard lock(mutex);
        greeting.over = true;
        return std::move(greeting.channel);
    }

    void introduce(const std::shared_ptr<Peer::Impl>& peer) {
        const std::lock_guard lock(mutex);
        std::erase_if(known, [](const auto& weak) { return weak.expired(); });
        known.push_back(peer);
        ready.push_back(Peer(peer));
        changed.notify_all();
    }

    // Puts the connection in the place of the one of its session that broke, if there is one; nobody is told.
    void resume(Greeting& greeting, const Hello& theirs, Hello mine, Deadline deadline) {
        std::shared_ptr<Peer::Impl> peer;
        {
            const std::lock_guard lock(mutex);
            for (const auto& weak : known)
                if (auto one = weak.lock(); one && one->link.session() == theirs.session && one->epoch == theirs.epoch)
                    peer = std::move(one);
        }
        try {
            const auto answer = [&](std::uint64_t received) {
                mine.session = theirs.session;
                mine.resume = true;
                mine.received = received;
                send_hello(greeting.channel, mine, deadline);
            };
            if (theirs.session != 0 && peer && peer->link.take_over(answer)) {
                peer->link.put({take(greeting), theirs.received});
            } else {
                send_hello(greeting.channel, mine, deadline);
            }
        } catch (const Error&) {
            // It tries again, or gives up: the peer that is waited for tells.
        }
    }

    void fail(const std::exception_ptr& error) noexcept {
        const std::lock_guard lock(mutex);
        if (failures.size() == kMaxFailures) failures.pop_front();
        failures.push_back(error);
        changed.notify_all();
    }

    const Node node;
    const PeerOptions options;
    ControlListener control;

    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex:
    std::deque<Peer> ready;
    std::deque<std::exception_ptr> failures;
    std::list<Greeting> greetings;
    std::vector<std::weak_ptr<Peer::Impl>> known;

    std::jthread thread;
};

Listener::Listener(const Node& node, const std::string& host, std::uint16_t port, const ListenOptions& options,
                   const PeerOptions& peer_options)
    : impl_(std::make_unique<Impl>(node, host, port, options, peer_options)) {}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

std::uint16_t Listener::port() const noexcept {
    return impl_->control.port();
}

std::optional<Peer> Listener::accept(Deadline deadline) {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait_until(lock, deadline.at(), [&] { return !impl_->ready.empty() || !impl_->failures.empty(); });
    if (!impl_->ready.empty()) {
        std::optional<Peer> peer(std::move(impl_->ready.front()));
        impl_->ready.pop_front();
        impl_->changed.notify_all();
        return peer;
    }
    if (impl_->failures.empty()) return std::nullopt;
    const std::exception_ptr failure = impl_->failures.front();
    impl_->failures.pop_front();
    std::rethrow_exception(failure);
}

}  // namespace lynx
