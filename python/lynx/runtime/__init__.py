"""The decode loop: arrivals in, tokens out, as a policy says.

One call of `decode` serves one request on one thread. It is a generator of events; whoever iterates it shows, sends or
measures them. `stream` makes an asynchronous iterator of it.
"""

from __future__ import annotations

from lynx.runtime.events import Arrived, Committed, Done, Drafted, Event, RolledBack, Started
from lynx.runtime.loop import NEAR_TIE, decode
from lynx.runtime.manifest import check_manifest
from lynx.runtime.released import Confirmed, Shown, TakenBack, released
from lynx.runtime.request import TRANSFER_ERRORS, OnLoss
from lynx.runtime.stop import StopStrings
from lynx.runtime.stream import stream

__all__ = [
    "NEAR_TIE",
    "TRANSFER_ERRORS",
    "Arrived",
    "Committed",
    "Confirmed",
    "Done",
    "Drafted",
    "Event",
    "OnLoss",
    "RolledBack",
    "Shown",
    "Started",
    "StopStrings",
    "TakenBack",
    "check_manifest",
    "decode",
    "released",
    "stream",
]
