"""What the decode loop tells, in order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lynx._core import Error
from lynx.policies.base import Tier


@dataclass(frozen=True, slots=True)
class Started:
    """The token is here that prefill sampled from its exact cache. It stays, whatever the policy."""

    first_token: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """More of the cache has come. Fractions, 0 to 1, of the anchor's bytes and of all those behind it."""

    anchor: float
    residual: float


@dataclass(frozen=True, slots=True)
class Drafted:
    """A provisional token, `margin` logits ahead of its runner-up: it may be taken back."""

    token: int
    margin: float = math.inf


@dataclass(frozen=True, slots=True)
class Committed:
    """Verified tokens: they stay. The first `accepted` of them were drafted before.

    Drafts that were made while the pass ran may stand behind them, provisional as before; then all of `tokens` are
    accepted ones.
    """

    tokens: tuple[int, ...]
    accepted: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The last `count` drafted tokens are taken back."""

    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end. `tokens` is the whole text without the first token, the first `committed` of it verified.

    `verified` says that all of it is, on the reference tier. If it is false, then the tokens behind the committed ones
    were drafted on `tier` and nothing has checked them: because no finer one was announced, or because of `error`,
    which ended the transfer. `near_ties` counts the committed tokens that another order of the same sums could have
    decided otherwise: see `decode`.
    """

    tokens: tuple[int, ...]
    committed: int
    verified: bool
    tier: Tier
    drafted: int
    accepted: int
    rollbacks: int
    error: Error | None = None
    near_ties: int = 0


Event = Started | Arrived | Drafted | Committed | RolledBack | Done
