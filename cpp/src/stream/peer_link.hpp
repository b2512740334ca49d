// One control connection to a peer, kept alive and watched: heartbeats, large messages in pieces, and the two threads
// that read and write it. What the messages mean is its handler's business.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lynx/control.hpp"
#include "lynx/peer.hpp"
#include "stream/peer_messages.hpp"

namespace lynx {

/// Called on the link's reader thread. None of it may block: heartbeats are listened for on this thread.
class LinkHandler {
   public:
    /// A whole message. What it throws ends the link.
    virtual void on_message(ControlMessage message) = 0;
    /// After every message and now and then without one. True to be called again soon.
    [[nodiscard]] virtual bool on_tick() = 0;
    /// The connection has ended, and this is why. The last call.
    virtual void on_link_lost(const std::exception_ptr& cause) noexcept = 0;

   protected:
    ~LinkHandler() = default;
};

class PeerLink {
   public:
    /// Takes a connection on which both sides have said hello. Throws InvalidArgument for options that cannot be kept.
    PeerLink(ControlChannel channel, const PeerOptions& options, LinkHandler& handler);
    PeerLink(const PeerLink&) = delete;
    PeerLink& operator=(const PeerLink&) = delete;
    ~PeerLink();
    /// Starts the threads; the handler is called from now on.
    void start();

    /// Queues a small message before all large ones. Never blocks. Throws PeerLost if too many wait already: a peer
    /// that does not read.
    void post(MessageType type, std::vector<std::byte> payload);
    /// Queues a message of any size (offers and the embedder's own), behind others of its kind. Waits while too many
    /// bytes of them wait already; false at the deadline. Throws nothing if the link has ended: the handler has heard.
    [[nodiscard]] bool send(MessageType type, ConstByteSpan payload, Deadline deadline);
    /// Sends what is queued, for a second at most, and ends the connection. May be called more than once, but not on
    /// the link's own threads.
    void close() noexcept;
    /// Ends the connection now.
    void abort() noexcept;
    [[nodiscard]] const std::string& peer_name() const noexcept { return channel_.peer_name(); }

   private:
    struct Frame {
        MessageType type = MessageType::kHeartbeat;
        std::vector<std::byte> payload;
    };

    void read(const std::stop_token& stop);
    void listen(const std::stop_token& stop);
    void on_frame(ControlMessage frame);
    void write() noexcept;
    [[nodiscard]] bool next_frame(Frame& frame);  // false: there will be none any more
    [[nodiscard]] Frame next_piece();             // of bulk_; the mutex is held

    ControlChannel channel_;
    const PeerOptions options_;
    LinkHandler& handler_;
    std::vector<std::byte> pieces_;  // of the message that is coming in; the reader's

    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_:
    std::deque<Frame> urgent_;
    std::deque<Frame> bulk_;
    std::size_t bulk_bytes_ = 0;  // of all of bulk_
    std::size_t bulk_sent_ = 0;   // of its first message
    bool closing_ = false;        // nothing more is queued
    bool written_ = false;        // the writer has ended
    std::exception_ptr write_error_;

    std::jthread reader_, writer_;  // last: they use all of the above
};

}  // namespace lynx
