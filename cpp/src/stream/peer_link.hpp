// The control connection to a peer, kept alive and watched: heartbeats, the two threads that read and write it, and,
// if both sides want that, a new connection in the place of one that broke. What the messages mean is its handler's
// business.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lynx/control.hpp"
#include "lynx/peer.hpp"
#include "stream/peer_messages.hpp"
#include "stream/peer_outbox.hpp"

namespace lynx {

/// Called on the link's reader thread. None of it may block: heartbeats are listened for on this thread.
class LinkHandler {
   public:
    /// A whole message. What it throws ends the link.
    virtual void on_message(ControlMessage message) = 0;
    /// After every message and now and then without one. True to be called again soon.
    [[nodiscard]] virtual bool on_tick() = 0;
    /// A heartbeat of the peer did not come in time.
    virtual void on_missed_heartbeat() noexcept = 0;
    /// The connection is broken, and a new one is waited for.
    virtual void on_link_down() noexcept = 0;
    /// It is there. Messages of the old one that had not come are sent again by themselves.
    virtual void on_link_up() = 0;
    /// The connection has ended, and this is why; `ended` if the peer has ended it, and has not fallen silent. The last
    /// call.
    virtual void on_link_lost(const std::exception_ptr& cause, bool ended) noexcept = 0;

   protected:
    ~LinkHandler() = default;
};

/// A connection in the place of another one, and how many messages of this side had come over that.
struct Resumed {
    ControlChannel channel;
    std::uint64_t received = 0;
};

/// Connects anew, telling how many messages have been received; calls `poll` while it waits. Nothing if that may be
/// tried again; throws PeerLost if the peer does not know the session any more, and what `poll` throws.
using Redial =
    std::function<std::optional<Resumed>(std::uint64_t received, Deadline deadline, const std::function<void()>& poll)>;

struct LinkSession {
    std::uint64_t id = 0;  ///< chosen by the side that connects; 0: a connection that breaks is not taken up anew
    Redial redial;         ///< of the side that connects
};

/// Throws InvalidArgument for options that cannot be kept.
void check(const PeerOptions& options);

class PeerLink {
   public:
    /// Takes a connection on which both sides have said hello. Throws InvalidArgument for options that cannot be kept.
    PeerLink(ControlChannel channel, const PeerOptions& options, LinkSession session, LinkHandler& handler);
    PeerLink(const PeerLink&) = delete;
    PeerLink& operator=(const PeerLink&) = delete;
    ~PeerLink();
    /// Starts the threads; the handler is called from now on.
    void start();

    /// Queues a small message before all large ones. Never blocks. Throws PeerLost if too many wait already: a peer
    /// that does not read.
    void post(MessageType type, std::vector<std::byte> payload);
    /// Queues a message that may be large, behind others of its kind. Waits while too many bytes of them wait already;
    /// false at the deadline. Throws nothing if the link has ended: the handler has heard.
    [[nodiscard]] bool send(MessageType type, ConstByteSpan payload, Deadline deadline);
    /// Sends what is queued, for a second at most, and ends the connection. May be called more than once, but not on
    /// the link's own threads.
    void close() noexcept;
    /// Ends the connection now.
    void abort() noexcept;

    /// Ends this connection, because the peer asks to resume over another one. `answer` is called with the number of
    /// messages that have been received, once no more can come; after it, put() the new connection. False if this link
    /// does not resume; throws PeerLost if it cannot now. On a listener's thread.
    [[nodiscard]] bool take_over(const std::function<void(std::uint64_t received)>& answer);
    void put(Resumed next);

    [[nodiscard]] std::uint64_t session() const noexcept { return session_.id; }
    [[nodiscard]] const std::string& peer_name() const noexcept { return name_; }

   private:
    void read(const std::stop_token& stop);
    void listen(const std::stop_token& stop, ControlChannel& channel);
    void drop() noexcept;
    void on_frame(ControlMessage frame);
    void on_whole(ControlMessage message);
    void on_heartbeat(ConstByteSpan payload);
    /// Waits for a new connection; throws PeerLost if none comes.
    void reconnect(const std::string& cause, const std::stop_token& stop);
    [[nodiscard]] std::optional<Resumed> next_connection(Deadline deadline, const std::function<void()>& poll);

    void write() noexcept;
    struct Sending {
        std::shared_ptr<ControlChannel> channel;
        Frame frame;
    };
    [[nodiscard]] std::optional<Sending> next_frame();  // nothing: there will be none any more
    [[nodiscard]] Frame heartbeat();                    // the mutex is held

    const std::string name_;
    const PeerOptions options_;
    const LinkSession session_;
    LinkHandler& handler_;
    // The reader's own:
    std::vector<std::byte> pieces_;  // of the message that is coming in
    bool gone_ = false;              // it has said so

    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_:
    std::shared_ptr<ControlChannel> channel_;  // none while the connection is broken
    std::optional<Resumed> next_;              // in its place
    Outbox outbox_;
    std::uint64_t received_ = 0;       // whole messages
    std::uint64_t told_received_ = 0;  // of them, what the peer has been told of
    std::size_t untold_bytes_ = 0;
    bool closing_ = false;  // nothing more is queued
    bool said_bye_ = false;
    bool written_ = false;  // the writer has ended
    std::exception_ptr write_error_;

    std::jthread reader_, writer_;  // last: they use all of the above
};

}  // namespace lynx
