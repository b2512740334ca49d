"""What an interface shows of a decode loop's events, by a release policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lynx.policies.release import Release
from lynx.runtime.events import Committed, Done, Drafted, Event, RolledBack, Started


@dataclass(frozen=True, slots=True)
class Shown:
    """These tokens go behind what is shown. If they are not `verified`, then they may be taken back."""

    tokens: tuple[int, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The oldest `count` of the tokens that were shown unverified are verified now: they stay."""

    count: int


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The last `count` shown tokens, all unverified, are taken back."""

    count: int


def released(events: Iterable[Event], release: Release) -> Iterator[Shown | Confirmed | TakenBack | Done]:
    """Turn the events of `decode` into what is to be shown. `Done` passes as it is, and is the last.

    What is neither confirmed nor taken back at the end was never verified: `Done.verified` is then false, and its
    tokens behind the `committed` ones may or may not have been shown, as the release says.
    """
    drafts: list[tuple[int, float]] = []
    shown = 0  # of them
    for event in events:
        if isinstance(event, Started):
            yield Shown((event.first_token,), verified=True)
        elif isinstance(event, Drafted):
            drafts.append((event.token, event.margin))
        elif isinstance(event, RolledBack):
            del drafts[len(drafts) - event.count :]
            if shown > len(drafts):
                yield TakenBack(shown - len(drafts))
                shown = len(drafts)
        elif isinstance(event, Committed):
            confirmed = min(shown, event.accepted)
            if confirmed:
                yield Confirmed(confirmed)
            if event.tokens[confirmed:]:
                yield Shown(event.tokens[confirmed:], verified=True)
            del drafts[: event.accepted]
            shown -= confirmed
        elif isinstance(event, Done):
            yield event
            return
        may_be = release.shown([margin for _, margin in drafts])
        if may_be > shown:
            yield Shown(tuple(token for token, _ in drafts[shown:may_be]), verified=False)
            shown = may_be
