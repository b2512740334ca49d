#include "stream/peer_outbox.hpp"

#include <utility>

namespace lynx {

void Outbox::push(Frame message) {
    if (!comes_in_pieces(message.type)) return small_.push_back(std::move(message));
    bytes_ += message.payload.size();
    large_.push_back(std::move(message));
}

std::optional<Frame> Outbox::next() {
    if (!small_.empty()) {
        Frame first = std::move(small_.front());
        small_.pop_front();
        if (keeps_) sent_.push_back(first);
        return first;
    }
    if (large_.empty()) return std::nullopt;
    Frame& first = large_.front();
    const auto begin = first.payload.begin() + static_cast<std::ptrdiff_t>(begun_);
    if (first.payload.size() - begun_ > kPieceBytes) {
        begun_ += kPieceBytes;
        return Frame{MessageType::kPiece, {begin, begin + kPieceBytes}};
    }
    Frame last{first.type, {begin, first.payload.end()}};
    Frame whole = std::move(first);
    large_.pop_front();
    begun_ = 0;
    if (keeps_)
        sent_.push_back(std::move(whole));
    else
        bytes_ -= whole.payload.size();
    return last;
}

bool Outbox::acknowledge(std::uint64_t received) {
    if (received < acknowledged_ || received - acknowledged_ > sent_.size()) return false;
    for (; acknowledged_ < received; ++acknowledged_) {
        if (comes_in_pieces(sent_.front().type)) bytes_ -= sent_.front().payload.size();
        sent_.pop_front();
    }
    return true;
}

bool Outbox::rewind(std::uint64_t received) {
    if (!acknowledge(received)) return false;
    begun_ = 0;
    for (; !sent_.empty(); sent_.pop_back()) {
        auto& lane = comes_in_pieces(sent_.back().type) ? large_ : small_;
        lane.push_front(std::move(sent_.back()));
    }
    return true;
}

void Outbox::clear() {
    small_.clear();
    large_.clear();
    sent_.clear();
    begun_ = 0;
    bytes_ = 0;
}

}  // namespace lynx
