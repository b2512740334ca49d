#include "stream/peer_link.hpp"

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxWhole = 4u << 20;  // the longest offer and the longest message have less
constexpr std::size_t kMaxWaitingBytes = 4u << 20;
constexpr std::size_t kMaxWaitingMessages = 4096;
constexpr std::uint64_t kMaxUntold = 16;
constexpr std::size_t kMaxUntoldBytes = 256u << 10;
constexpr auto kListenSlice = milliseconds(20);
constexpr auto kLongestSlice = milliseconds(100);  // of silence; beyond it this thread did not listen
constexpr auto kListenSliceWhenBusy = milliseconds(5);
// For one frame. Whether the peer lives is not told by this, but by what is heard of it.
constexpr auto kWriteDeadline = std::chrono::seconds(30);
constexpr auto kCloseDeadline = std::chrono::seconds(1);
constexpr auto kTakeOverDeadline = std::chrono::seconds(2);
constexpr auto kRedialDeadline = std::chrono::seconds(1);  // of one try
constexpr auto kRedialPause = milliseconds(100);

/// Nothing is known of the peer but that nothing is heard of it.
struct Silence : PeerLost {
    using PeerLost::PeerLost;
};

std::string in_seconds(Clock::duration time) {
    const auto tenths = std::chrono::duration_cast<milliseconds>(time).count() / 100;
    return text(tenths / 10, ".", tenths % 10, " s");
}

}  // namespace

void check(const PeerOptions& options) {
    if (options.lost_after < milliseconds(200) || options.heartbeat_interval <= Clock::duration::zero() ||
        options.lost_after < 2 * options.heartbeat_interval)
        throw InvalidArgument(text("a peer was to be lost after ", in_seconds(options.lost_after),
                                   " with heartbeats every ", in_seconds(options.heartbeat_interval),
                                   ": give lost_after at least 0.2 s and two intervals"));
}

PeerLink::PeerLink(ControlChannel channel, const PeerOptions& options, LinkSession session, LinkHandler& handler)
    : name_(channel.peer_name()),
      options_(options),
      session_(std::move(session)),
      handler_(handler),
      channel_(std::make_shared<ControlChannel>(std::move(channel))) {
    check(options);
    if (session_.id != 0) outbox_.keep_sent();
}

PeerLink::~PeerLink() {
    close();
}

void PeerLink::start() {
    writer_ = std::jthread([this] { write(); });
    reader_ = std::jthread([this](const std::stop_token& stop) { read(stop); });
}

void PeerLink::close() noexcept {
    reader_.request_stop();
    std::unique_lock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
    if (writer_.joinable()) changed_.wait_for(lock, kCloseDeadline, [&] { return written_; });
    if (channel_) channel_->shutdown();
}

void PeerLink::abort() noexcept {
    reader_.request_stop();
    drop();
}

void PeerLink::drop() noexcept {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    outbox_.clear();
    next_.reset();
    changed_.notify_all();
    if (channel_) channel_->shutdown();
}

void PeerLink::post(MessageType type, std::vector<std::byte> payload) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    if (outbox_.messages() >= kMaxWaitingMessages)
        throw PeerLost(
            text("the peer at ", peer_name(), " does not read: ", kMaxWaitingMessages, " messages wait for it"));
    outbox_.push({type, std::move(payload)});
    changed_.notify_all();
}

bool PeerLink::send(MessageType type, ConstByteSpan payload, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto has_room = [&] { return closing_ || outbox_.bytes() <= kMaxWaitingBytes; };
    if (!changed_.wait_until(lock, deadline.at(), has_room)) return false;
    if (closing_) return true;
    outbox_.push({type, {payload.begin(), payload.end()}});
    changed_.notify_all();
    return true;
}

Frame PeerLink::heartbeat() {
    if (session_.id == 0) return {MessageType::kHeartbeat, {}};
    told_received_ = received_;
    untold_bytes_ = 0;
    return {MessageType::kHeartbeat, Heartbeat{received_}.serialize()};
}

std::optional<PeerLink::Sending> PeerLink::next_frame() {
    std::unique_lock lock(mutex_);
    const auto tells = [&] {
        return session_.id != 0 && (received_ - told_received_ >= kMaxUntold || untold_bytes_ >= kMaxUntoldBytes);
    };
    // While there is no connection everything waits, but for the end.
    const auto can_send = [&] { return channel_ != nullptr && !write_error_; };
    for (;;) {
        if (can_send()) {
            if (tells()) return Sending{channel_, heartbeat()};
            if (auto frame = outbox_.next()) {
                changed_.notify_all();  // send() may have room now
                return Sending{channel_, std::move(*frame)};
            }
            if (closing_ && !std::exchange(said_bye_, true)) return Sending{channel_, {MessageType::kBye, {}}};
        }
        if (closing_) return std::nullopt;
        const bool work = changed_.wait_for(lock, options_.heartbeat_interval,
                                            [&] { return closing_ || (can_send() && (tells() || !outbox_.empty())); });
        if (!work && can_send()) return Sending{channel_, heartbeat()};
    }
}

void PeerLink::write() noexcept {
    try {
        while (auto sending = next_frame()) try {
                sending->channel->send(static_cast<std::uint8_t>(sending->frame.type), sending->frame.payload,
                                       Deadline::after(kWriteDeadline));
            } catch (...) {
                // The reader reads on until nothing more is there: the last that a leaving peer said may be that all is
                // well.
                const std::lock_guard lock(mutex_);
                if (channel_ == sending->channel) write_error_ = std::current_exception();
            }
    } catch (...) {
        const std::lock_guard lock(mutex_);
        write_error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    written_ = true;
    changed_.notify_all();
}

void PeerLink::read(const std::stop_token& stop) {
    std::exception_ptr cause;
    bool ended = false;
    try {
        while (!stop.stop_requested()) {
            std::shared_ptr<ControlChannel> channel;
            {
                const std::lock_guard lock(mutex_);
                channel = channel_;
            }
            std::string broken;
            try {
                listen(stop, *channel);
                continue;
            } catch (const Silence& e) {
                ended = false;
                broken = e.what();
            } catch (const PeerLost& e) {
                ended = true;
                broken = e.what();
            } catch (const Timeout& e) {  // of half a frame, either way: it stopped in the middle of it
                ended = false;
                broken = e.what();
            }
            reconnect(broken, stop);
        }
        return;
    } catch (...) {
        cause = std::current_exception();
    }
    handler_.on_link_lost(cause, ended);
    drop();  // not abort(): start() may still be assigning this thread
}

void PeerLink::listen(const std::stop_token& stop, ControlChannel& channel) {
    // Counted by what was listened and in vain, not by a clock: while this process is stopped, or this thread is kept
    // from running, nobody can tell whether the peer is silent.
    Clock::duration silent{};
    auto heartbeats_due = silent / options_.heartbeat_interval;
    bool busy = false;
    while (!stop.stop_requested()) {
        const Clock::duration slice = busy ? kListenSliceWhenBusy : kListenSlice;
        const auto begin = Clock::now();
        auto frame = channel.receive(Deadline(begin + slice), {.grace = options_.lost_after});
        if (frame) {
            silent = {};
            heartbeats_due = 0;
            on_frame(std::move(*frame));
        } else {
            silent += std::min<Clock::duration>(Clock::now() - begin, kLongestSlice);
            // The first may be just a little late.
            for (; heartbeats_due < silent / options_.heartbeat_interval; ++heartbeats_due)
                if (heartbeats_due > 0) handler_.on_missed_heartbeat();
            if (silent >= options_.lost_after)
                throw Silence(text("the peer at ", peer_name(), " has been silent for ", in_seconds(silent),
                                   ", without a heartbeat: it was stopped, or the link to it is cut; connect anew to "
                                   "go on"));
            const std::lock_guard lock(mutex_);
            if (write_error_) std::rethrow_exception(write_error_);
        }
        busy = handler_.on_tick();
    }
}

void PeerLink::on_frame(ControlMessage frame) {
    const auto type = static_cast<MessageType>(frame.type);
    if (type == MessageType::kHeartbeat) return on_heartbeat(frame.payload);
    if (type != MessageType::kPiece && !comes_in_pieces(type)) return on_whole(std::move(frame));
    if (pieces_.size() + frame.payload.size() > kMaxWhole)
        throw ProtocolError(text("the peer at ", peer_name(), " sent a message of more than ", kMaxWhole, " bytes"));
    if (type == MessageType::kPiece || !pieces_.empty())
        pieces_.insert(pieces_.end(), frame.payload.begin(), frame.payload.end());
    if (type == MessageType::kPiece) return;
    if (!pieces_.empty()) frame.payload = std::exchange(pieces_, {});
    on_whole(std::move(frame));
}

void PeerLink::on_whole(ControlMessage message) {
    if (message.type == static_cast<std::uint8_t>(MessageType::kBye)) {
        gone_ = true;
        throw PeerLost(text("the peer at ", peer_name(), " has closed the connection; connect anew to go on"));
    }
    const std::size_t bytes = message.payload.size();
    handler_.on_message(std::move(message));
    const std::lock_guard lock(mutex_);
    received_ += 1;
    untold_bytes_ += bytes;
    changed_.notify_all();
}

void PeerLink::on_heartbeat(ConstByteSpan payload) {
    if (session_.id == 0) return;
    const std::uint64_t received = Heartbeat::parse(payload).received;
    const std::lock_guard lock(mutex_);
    if (!outbox_.acknowledge(received))
        throw ProtocolError(
            text("the peer at ", peer_name(), " says that it got ", received, " messages, which cannot be"));
    changed_.notify_all();
}

void PeerLink::reconnect(const std::string& cause, const std::stop_token& stop) {
    {
        const std::lock_guard lock(mutex_);
        if (session_.id == 0 || gone_ || closing_) throw PeerLost(cause);
        channel_->shutdown();  // the writer may be sending over it
        channel_ = nullptr;
        write_error_ = nullptr;
        changed_.notify_all();
    }
    pieces_.clear();
    handler_.on_link_down();
    const auto poll = [&] {
        if (stop.stop_requested()) throw PeerLost(cause);
        (void)handler_.on_tick();
    };
    const Deadline deadline = Deadline::after(options_.reconnect_for);
    while (!deadline.passed()) {
        poll();
        auto next = next_connection(deadline, poll);
        if (!next) continue;
        {
            const std::lock_guard lock(mutex_);
            if (closing_) throw PeerLost(cause);
            if (!outbox_.rewind(next->received))
                throw ProtocolError(text("the peer at ", peer_name(), " resumed and says that it got ", next->received,
                                         " messages, which cannot be"));
            channel_ = std::make_shared<ControlChannel>(std::move(next->channel));
            told_received_ = received_;
            changed_.notify_all();
        }
        return handler_.on_link_up();
    }
    throw PeerLost(text(cause, "; no new connection was there within ", in_seconds(options_.reconnect_for)));
}

std::optional<Resumed> PeerLink::next_connection(Deadline deadline, const std::function<void()>& poll) {
    std::unique_lock lock(mutex_);
    if (session_.redial) {
        const std::uint64_t received = received_;
        lock.unlock();
        auto next = session_.redial(received, Deadline(std::min(deadline.at(), Clock::now() + kRedialDeadline)), poll);
        lock.lock();
        if (!next) changed_.wait_for(lock, kRedialPause, [&] { return closing_; });
        return next;
    }
    changed_.wait_until(lock, std::min(deadline.at(), Clock::now() + kListenSlice),
                        [&] { return closing_ || next_.has_value(); });
    return std::exchange(next_, std::nullopt);
}

bool PeerLink::take_over(const std::function<void(std::uint64_t received)>& answer) {
    std::uint64_t received = 0;
    {
        std::unique_lock lock(mutex_);
        if (closing_ || session_.id == 0 || session_.redial) return false;
        if (channel_) channel_->shutdown();  // this side may not have noticed yet that it is broken
        changed_.wait_for(lock, kTakeOverDeadline, [&] { return closing_ || !channel_; });
        if (closing_ || channel_) throw PeerLost(text("the peer at ", peer_name(), " could not be resumed now"));
        next_.reset();  // of an earlier try, which the peer has given up
        received = received_;
    }
    answer(received);
    return true;
}

void PeerLink::put(Resumed next) {
    const std::lock_guard lock(mutex_);
    next_ = std::move(next);
    changed_.notify_all();
}

}  // namespace lynx
