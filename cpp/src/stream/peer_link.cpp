#include "stream/peer_link.hpp"

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "lynx/error.hpp"

namespace lynx {

namespace {

using std::chrono::milliseconds;

// A message goes in frames of at most so many bytes, so that a heartbeat, a grant or a cancel never waits behind more,
// and each of them shows a peer on a slow link that this side lives.
constexpr std::size_t kPieceBytes = 16u << 10;
constexpr std::size_t kMaxWhole = kMaxMessageBytes + (1u << 20);  // the longest offer has less
constexpr std::size_t kMaxBulkBytes = 4u << 20;
constexpr std::size_t kMaxUrgent = 4096;
constexpr auto kListenSlice = milliseconds(50);
constexpr auto kListenSliceWhenBusy = milliseconds(5);
// For one frame. Whether the peer lives is not told by this, but by what is heard of it.
constexpr auto kWriteDeadline = std::chrono::seconds(30);
constexpr auto kCloseDeadline = std::chrono::seconds(1);

std::string in_seconds(Clock::duration time) {
    const auto tenths = std::chrono::duration_cast<milliseconds>(time).count() / 100;
    return text(tenths / 10, ".", tenths % 10, " s");
}

bool comes_in_pieces(MessageType type) {
    return type == MessageType::kOffer || type == MessageType::kUser;
}

}  // namespace

PeerLink::PeerLink(ControlChannel channel, const PeerOptions& options, LinkHandler& handler)
    : channel_(std::move(channel)), options_(options), handler_(handler) {
    if (options.lost_after < milliseconds(200) || options.heartbeat_interval <= Clock::duration::zero() ||
        options.lost_after < 2 * options.heartbeat_interval)
        throw InvalidArgument(text("a peer was to be lost after ", in_seconds(options.lost_after),
                                   " with heartbeats every ", in_seconds(options.heartbeat_interval),
                                   ": give lost_after at least 0.2 s and two intervals"));
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
    {
        std::unique_lock lock(mutex_);
        closing_ = true;
        changed_.notify_all();
        if (writer_.joinable()) changed_.wait_for(lock, kCloseDeadline, [&] { return written_; });
    }
    channel_.shutdown();
}

void PeerLink::abort() noexcept {
    reader_.request_stop();
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
        urgent_.clear();
        bulk_.clear();
        changed_.notify_all();
    }
    channel_.shutdown();
}

void PeerLink::post(MessageType type, std::vector<std::byte> payload) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    if (urgent_.size() >= kMaxUrgent)
        throw PeerLost(text("the peer at ", peer_name(), " does not read: ", kMaxUrgent, " messages wait for it"));
    urgent_.push_back({type, std::move(payload)});
    changed_.notify_all();
}

bool PeerLink::send(MessageType type, ConstByteSpan payload, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline.at(), [&] { return closing_ || bulk_bytes_ <= kMaxBulkBytes; }))
        return false;
    if (closing_) return true;
    bulk_.push_back({type, {payload.begin(), payload.end()}});
    bulk_bytes_ += payload.size();
    changed_.notify_all();
    return true;
}

PeerLink::Frame PeerLink::next_piece() {
    Frame& first = bulk_.front();
    const std::size_t left = first.payload.size() - bulk_sent_;
    const auto begin = first.payload.begin() + static_cast<std::ptrdiff_t>(bulk_sent_);
    if (left > kPieceBytes) {
        bulk_sent_ += kPieceBytes;
        return {MessageType::kPiece, {begin, begin + kPieceBytes}};
    }
    Frame last{first.type, {begin, first.payload.end()}};
    bulk_bytes_ -= first.payload.size();
    bulk_sent_ = 0;
    bulk_.pop_front();
    changed_.notify_all();
    return last;
}

bool PeerLink::next_frame(Frame& frame) {
    std::unique_lock lock(mutex_);
    const auto heartbeat_at = Clock::now() + options_.heartbeat_interval;
    changed_.wait_until(lock, heartbeat_at, [&] { return closing_ || !urgent_.empty() || !bulk_.empty(); });
    if (!urgent_.empty()) {
        frame = std::move(urgent_.front());
        urgent_.pop_front();
    } else if (!bulk_.empty()) {
        frame = next_piece();
    } else if (closing_) {
        return false;
    } else {
        frame = {MessageType::kHeartbeat, {}};
    }
    return true;
}

void PeerLink::write() noexcept {
    std::exception_ptr error;
    try {
        Frame frame;
        while (next_frame(frame))
            channel_.send(static_cast<std::uint8_t>(frame.type), frame.payload, Deadline::after(kWriteDeadline));
    } catch (...) {
        // The reader reads on until nothing more is there: the last that a leaving peer said may be that all is well.
        error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    written_ = true;
    write_error_ = error;
    changed_.notify_all();
}

void PeerLink::read(const std::stop_token& stop) {
    try {
        listen(stop);
        return;
    } catch (const Timeout& e) {
        // Of half a frame, either way: the peer stopped, or the link was cut, in the middle of it.
        handler_.on_link_lost(std::make_exception_ptr(PeerLost(e.what())));
    } catch (...) {
        handler_.on_link_lost(std::current_exception());
    }
    abort();
}

void PeerLink::listen(const std::stop_token& stop) {
    // Counted by what was listened and in vain, not by a clock: while this process is stopped, or this thread is kept
    // from running, nobody can tell whether the peer is silent.
    Clock::duration silent{};
    bool busy = false;
    while (!stop.stop_requested()) {
        const Clock::duration slice = busy ? kListenSliceWhenBusy : kListenSlice;
        const auto begin = Clock::now();
        auto frame = channel_.receive(Deadline(begin + slice), options_.lost_after);
        if (frame) {
            silent = {};
            on_frame(std::move(*frame));
        } else {
            silent += std::min(Clock::now() - begin, 2 * slice);
            if (silent >= options_.lost_after)
                throw PeerLost(text("the peer at ", peer_name(), " has been silent for ", in_seconds(silent),
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
    if (type == MessageType::kHeartbeat) return;
    if (type != MessageType::kPiece && !comes_in_pieces(type)) return handler_.on_message(std::move(frame));
    if (pieces_.size() + frame.payload.size() > kMaxWhole)
        throw ProtocolError(text("the peer at ", peer_name(), " sent a message of more than ", kMaxWhole, " bytes"));
    if (type == MessageType::kPiece || !pieces_.empty())
        pieces_.insert(pieces_.end(), frame.payload.begin(), frame.payload.end());
    if (type == MessageType::kPiece) return;
    if (!pieces_.empty()) frame.payload = std::exchange(pieces_, {});
    handler_.on_message(std::move(frame));
}

}  // namespace lynx
