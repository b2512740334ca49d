// Ending a transfer while another error is already on its way.
#pragma once

#include <string>

#include "lynx/error.hpp"
#include "lynx/peer.hpp"
#include "roles.hpp"

/// Tells the other side why, where a closed connection would only tell it that, and returns when no late write can come
/// any more: then the memory can serve the next request. `transfer` is a PlaneSender or a PlaneReceiver.
template <class Transfer>
void cancel_for(lynx::Peer& peer, Transfer& transfer, const std::string& reason) {
    try {
        peer.cancel(transfer, reason, lynx::Deadline::after(kAnswerPatience));
    } catch (const lynx::Error&) {
        // The other side has gone itself meanwhile. The first error is the one to report.
    }
}
