"""The decode loop's front: what is asked for, checked before anything is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lynx._core import Sampler, Sampling, Session
from lynx.policies.base import Policy, PolicyError, name_of
from lynx.runtime.events import Started
from lynx.runtime.manifest import check_manifest
from lynx.runtime.meters import Deadline, MonotonicClock
from lynx.runtime.request import Events, OnLoss, Receiver, Request

if TYPE_CHECKING:
    from lynx.engines.base import Engine

NEAR_TIE = 1e-3
"""Logits. A pass over many tokens sums in another order than one over a single token; where two tokens are closer than
this, either may come out. Measured in docs/sampling.md."""


def decode(
    receiver: Receiver,
    engine: Engine,
    policy: Policy,
    *,
    max_tokens: int,
    end_tokens: Sequence[int] = (),
    ends: Callable[[Sequence[int]], bool] | None = None,
    sampling: Sampling | None = None,
    prompt: Sequence[int] | None = None,
    timeout_s: float = 120.0,
    on_loss: OnLoss = OnLoss.RAISE,
    near_tie: float = NEAR_TIE,
    step_s: float = 0.0,
    clock: MonotonicClock = time.monotonic,
) -> Events:
    """Decode up to `max_tokens` from the cache that `receiver` is receiving. Prefill's own token is not counted.

    The text ends behind one of `end_tokens`, or where `ends`, asked after each token with all tokens so far (the first
    one included), says so: `StopStrings` is one. The tokens are those of `sampling` (greedy without), whose seed gives
    the same text whenever and on whatever part they were drafted; a repetition penalty needs the `prompt`'s tokens.

    The reference tier, whose output the committed tokens are, is everything that the manifest announces: all 8 planes,
    with the exact tier the bf16 cache bit for bit, or the raw cache. A manifest with anchors alone has no reference
    tier, and the request ends unverified. Committed tokens that were less than `near_tie` logits ahead of another are
    counted in `Done.near_ties`. `step_s`, where it is known, tells the policy how long a draft step takes before one
    has been measured.

    Raises `ProtocolError` if the manifest does not fit the engine, what ended the transfer (`PeerLost`, `Cancelled`,
    ...) unless `on_loss` says otherwise, `Timeout` once `timeout_s` have passed, and `PolicyError`, from the policy's
    own exception where it raised one. Events that were yielded before stay true. To be iterated, and closed, on one
    thread.
    """
    check_manifest(receiver.manifest, engine)
    if not callable(getattr(policy, "decide", None)):
        raise PolicyError(f"{name_of(policy)} is no policy: it has no method decide(snapshot)")
    request = Request(receiver, engine, policy, Deadline(clock, timeout_s), clock, near_tie, step_s)
    engine.start(
        receiver.manifest.context_tokens, max_tokens + 1, sampler=Sampler(sampling or Sampling()), prompt=prompt
    )
    first_token = yield from request.first_token()
    yield Started(first_token)
    session = Session(first_token, max_tokens, list(end_tokens), ends)
    yield from request.run(session, on_loss)
